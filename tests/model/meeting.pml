/* SPDX-License-Identifier: MIT
 *
 * How ranks that write each other's memory meet, for SPIN to look at every order in which it can happen.
 *
 * The idea: a rank is a stream of exchanges, an exchange one or two kernels, a kernel one or two blocks, a block the
 * sequence of its reads and writes of memory that others see. One such access is one step; what happens between two of
 * them is nobody's business. SPIN interleaves the steps of all ranks in every possible way and checks in each:
 *
 *   - A peer's store finds an output that waits for it, never one that is still read (`store`).
 *   - An exchange that succeeds has left all data of every peer in the output, and it stays (`checkOutput`).
 *   - With direct, nothing is stored where signatures differ (`storeTiles`).
 *   - Every rank finds a mismatch, none without one, and what follows the exchange does nothing (`end`, `refuse`).
 *   - Ranks stay in step, after a mismatch too (`block`, `judge`).
 *   - A world is lost only by a fault, with a reason, and for ever (`lose`, `end`).
 *   - Nobody waits for ever: no run ends but with every rank that lives at its end.
 *
 *   here                             in the code
 *   entryValue, entryEpoch           ulyxRecords.entry: slots {value, epoch}, both stored at once (storeSlot)
 *   exitEpoch, engineExit            ulyxRecords.exit, .engineExit; by direct both are stored and awaited together, and
 *                                    one stands for them
 *   epoch .. voided                  ulyxSyncState, field by field
 *   final, abortWord, passing...     ulyxMailbox: final, abort, passing
 *   enter, meet, refuse, lose,       the functions of cuda/exchange.cu of these names; hear is readSlot, judge and
 *   finishLast, leave                WAIT_ENDS are await, storeTiles is the loop over tiles, block exchangeKernel
 *   Rank                             ulyxGpuRun and the stream: launch after launch, then what follows an exchange
 *                                    (ulyxGpuBringHome, finish), which `voided` turns off
 *   Engine                           runEngines of runtime/transport_copy_engine.c: data to a peer, then the epoch
 *   Host                             ulyxMeetingsFound
 *   Breaker                          ulyxMeetingsBreak, at any time
 *   MAY_DIE                          the end of a process or its GPU, at any time
 *
 * Left out, and why:
 *   - Weak memory. A step is seen by all at once, which the fences and acquires of exchange.cu are there for. That they
 *     suffice is argued there, not here.
 *   - Threads. Those of a block wait for a slot each, in any order; once one has lost, what the others do is to read.
 *   - Time. A wait may time out at any moment, whether or not its peer is slow.
 *   - Width. Epochs are 64 bits, grow by one from 0 and are compared, never subtracted: no number below
 *     ULYX_EPOCH_ABORTED is special, not 2^31 and not 2^32. Here they are bytes.
 *   - Overlap. Exchanges of a rank follow each other here; that two that do not are found by `entered`, and what a block
 *     then leaves undone (`lost` in finishLast and leave), is tested on a GPU (tests/meeting_kernel_test.cc).
 *   - A second world. Records are allocated and cleared with a world and freed with it, and are no other world's: a
 *     restarted world is this model from its beginning.
 *   - Exchanges by NCCL in between, which touch none of this.
 *
 * Flags, all with -D:
 *   RANKS=2|3    EXCHANGES=n    BLOCKS=1|2 of a kernel
 *   ENGINES      copy_engine, else direct; UNDISTURBED: engines carry all of it
 *   LAUNCHES=2   direct, of more copies than a launch carries
 *   PLACES=2     an output lies at either of two places, which the second slot of an entry record says; with ENGINES
 *                ranks may disagree about it
 *   MISMATCH     the last rank may mean another exchange than the others, at any exchange; with ENGINES also by direct
 *   PAIR         ranks 0 and 1 may disagree on what only they know of each other
 *   TIMEOUTS=1   rank 0 alone may give up waiting; 2: every rank may
 *   ABORT        rank 0's host may break its world
 *   DEATH        the last rank may stop for ever
 *   HOST         rank 0's host asks for mismatches while exchanges run
 *   NO_OVERRUN   an output that a lost rank's engine writes too late is an error, too
 *   BREAK_...    a fault put in, which SPIN must find (check.sh) */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef EXCHANGES
#define EXCHANGES 2
#endif
#ifndef BLOCKS
#define BLOCKS 1
#endif
#ifndef LAUNCHES
#define LAUNCHES 1
#endif
/* An output has a part of each peer for each block of its that stores, and one for its engine. */
#ifdef ENGINES
#define BY_ENGINE(r) byEngine[r]
#define LAST_LAUNCH(r) (1 + byEngine[r])
#ifdef UNDISTURBED
#define PARTS 1
#else
#define PARTS (BLOCKS + 1)
#endif
#define PART(launch, b) (b)
#else
#define BY_ENGINE(r) false
#define LAST_LAUNCH(r) LAUNCHES
#define PARTS (LAUNCHES * BLOCKS)
#define PART(launch, b) (((launch)-1) * BLOCKS + (b))
#endif
#ifndef PLACES
#define PLACES 1
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 0
#endif
#if TIMEOUTS || defined(ABORT) || defined(DEATH)
#define MAY_BE_LOST true
#else
#define MAY_BE_LOST false
#endif

#define ABORTED 255 /* ULYX_EPOCH_ABORTED */

/* Who is met, where a record lies, and where a part of a peer's data. */
#define PEER(r, distance) (((r) + (distance)) % RANKS)
#define AT(owner, writer) ((owner)*RANKS + (writer))
#define SLOTS PLACES
#define SLOT(owner, writer, s) (AT(owner, writer) * SLOTS + (s))
#define CELL(owner, place, from, part) (((owner)*PLACES + (place)) * RANKS * PARTS + (from)*PARTS + (part))
/* copy_engine's first kernel meets and stores nothing. */
#define ONLY_MEETS(r, launch) (BY_ENGINE(r) && (launch) == 1)
#ifdef UNDISTURBED
#define STORES(r, launch) (!BY_ENGINE(r))
#else
#define STORES(r, launch) (!ONLY_MEETS(r, launch))
#endif
#define BLOCKS_OF(r, launch) (ONLY_MEETS(r, launch) -> 1 : BLOCKS)

/* Memory that peers write. */
byte entryValue[RANKS * RANKS * SLOTS];
byte entryEpoch[RANKS * RANKS * SLOTS];
byte exitEpoch[RANKS * RANKS];
#ifdef ENGINES
byte engineExit[RANKS * RANKS];
#endif
byte out[RANKS * PLACES * RANKS * PARTS]; /* outputs: the exchange whose data each part of each peer's holds */
#ifndef BREAK_EXIT_SAYS_NOTHING
bit exitValue[RANKS * RANKS];
#endif

/* ulyxSyncState */
byte epoch[RANKS];
byte entered[RANKS];
byte arrived[RANKS];
bit lost[RANKS];
bit refused[RANKS];
bit voided[RANKS];

/* ulyxMailbox */
mtype = { nothing, timedOut, ahead, aborted };
mtype final[RANKS] = nothing;
bit abortWord[RANKS];
bit passingKind[RANKS];
byte passingEpoch[RANKS];

/* The device at work: the launch that the second block runs, 0 for none; whether the running exchange is one by engine;
 * the engines to each peer. */
byte secondBlock[RANKS];
#ifdef ENGINES
bit byEngine[RANKS];
bit engineRuns[RANKS * RANKS];
#endif

/* What no program knows, for the assertions. */
byte current[RANKS];          /* the exchange that a rank has begun last */
byte meaning[RANKS];          /* what it means by it */
byte pairWord[RANKS];         /* and what ranks 0 and 1 expect of each other */
byte place[RANKS];            /* where its output lies */
bit reading[RANKS];           /* its caller reads the output */
byte said[EXCHANGES + 1];     /* bit m: some rank meant m */
byte saidPair[EXCHANGES + 1];
byte saidPlace[EXCHANGES + 1];
byte lastRefused[RANKS];
bit finished[RANKS];
#ifdef ENGINES
bit overrun[RANKS]; /* a lost rank's engine wrote an output that was not waiting for it */
#endif

/* What runs on the last rank may stop for ever before any access, each block and engine at its own. */
#ifdef DEATH
bit dead;
#define MAY_DIE                  \
  if                             \
  :: r == RANKS - 1 -> goto dies \
  :: true                        \
  fi
#define WAIT_FOR(condition)              \
  if                                     \
  :: condition                           \
  :: r == RANKS - 1 && dead -> goto dies \
  fi
#define DIES \
  goto ends; \
dies:        \
  dead = 1;  \
ends:        \
  skip
#else
#define MAY_DIE skip
#define WAIT_FOR(condition) condition
#define DIES skip
#endif

#ifdef ENGINES
#define DISAGREED(e) (said[e] == 3 || saidPair[e] == 3 || saidPlace[e] == 3)
#else
#define DISAGREED(e) (said[e] == 3 || saidPair[e] == 3)
#endif

#if TIMEOUTS == 2
#define MAY_TIME_OUT(r) true
#elif TIMEOUTS == 1
#define MAY_TIME_OUT(r) ((r) == 0)
#else
#define MAY_TIME_OUT(r) false
#endif

/* What rank r's entry record tells peer p: the signature, mixed with what the pair alone knows; then the place. */
#define PAIR_WORD(r, p) (pairWord[r] * ((r) < 2 && (p) < 2))
#define VALUE(r, p, s) (((s) == 0) * (meaning[r] + 2 * PAIR_WORD(r, p)) + ((s) == 1) * place[r])

/* A slot {value, epoch} stored whole. */
#ifdef BREAK_EPOCH_BEFORE_VALUE
#define STEP
#else
#define STEP atomic
#endif
inline storeSlot(owner, writer, s, value, stamp) {
  entryEpoch[SLOT(owner, writer, s)] = stamp;
  entryValue[SLOT(owner, writer, s)] = value
}

/* The entry record of this rank at every peer. */
#define STORE_ENTRIES(value, stamp)                      \
  distance = 1;                                          \
  do                                                     \
  :: STEP {                                              \
      distance < RANKS ->                                \
      MAY_DIE;                                           \
      storeSlot(PEER(r, distance), r, s, value, stamp);  \
      s++;                                               \
      if                                                 \
      :: s == SLOTS -> s = 0; distance++                 \
      :: else                                            \
      fi                                                 \
    }                                                    \
  :: atomic { distance == RANKS -> distance = 0; break } \
  od

/* The world is lost: the first block to find out tells this rank's others, its host and the peers. */
inline lose(found) {
  assert(MAY_BE_LOST); /* not without a fault */
  atomic {
    if
    :: lost[r] -> goto returns
    :: else -> lost[r] = 1; voided[r] = 1; final[r] = found
    fi
  }
#ifndef BREAK_ABORT_UNSAID
  STORE_ENTRIES(0, ABORTED);
  distance = 1;
  do
  :: atomic {
      distance < RANKS ->
      MAY_DIE;
      exitEpoch[AT(PEER(r, distance), r)] = ABORTED;
#ifdef ENGINES
    }
    atomic {
      MAY_DIE;
      engineExit[AT(PEER(r, distance), r)] = ABORTED;
#endif
      distance++
    }
  :: atomic { distance == RANKS -> distance = 0; break }
  od
#endif
}

inline enter() {
  d_step {
#ifdef BREAK_VOIDED_WHEN_ENTERING
    voided[r] = 0;
#endif
    entered[r] = e
  }
  STORE_ENTRIES(VALUE(r, PEER(r, distance), s), e)
}

/* A thread waits for each slot, in any order; `bits` are those that have what they wait for. */
#define ENTRY_BIT(d, s) (1 << (((d)-1) * SLOTS + (s)))
#define ENTRIES ((1 << ((RANKS - 1) * SLOTS)) - 1)
#define ENTRY(field, d, s) field[SLOT(r, PEER(r, d), s)]
#define ENTRY_COMES(d, s) ((d) < RANKS && (s) < SLOTS && !(bits & ENTRY_BIT(d, s)) && ENTRY(entryEpoch, d, s) >= e)

#define EXIT_BIT(d) (1 << ((d)-1))
#define ENGINE_BIT(d) (1 << ((d)-1 + RANKS - 1))
#ifdef ENGINES
#define EXITS ((1 << (2 * (RANKS - 1))) - 1)
#else
#define EXITS ((1 << (RANKS - 1)) - 1)
#endif
#define EXIT_COMES(d) ((d) < RANKS && !(bits & EXIT_BIT(d)) && exitEpoch[AT(r, PEER(r, d))] >= e)
#define ENGINE_COMES(d) ((d) < RANKS && !(bits & ENGINE_BIT(d)) && engineExit[AT(r, PEER(r, d))] >= e)

/* await: the slot is there, with an epoch that is not older. No peer is ever ahead but one that has lost its world,
 * whose engines go on. */
inline judge(stamp, peer) {
  if
  :: stamp == e
  :: stamp == ABORTED -> failed = aborted; goto loses
  :: else -> assert(lost[peer]); failed = ahead; goto loses
  fi
}

/* await: what ends a wait besides its slot. */
#define WAIT_ENDS(all, looksAtHost)                                                        \
  :: atomic { bits != all && lost[r] -> goto returns }                                     \
  :: atomic { bits != all && MAY_TIME_OUT(r) -> failed = timedOut; goto loses }            \
  :: atomic { bits != all && looksAtHost && abortWord[r] -> failed = aborted; goto loses } \
  :: atomic { bits == all -> bits = 0; break }

/* What a slot says is read with the epoch that it came with. What a peer tells is compared with what this rank tells
 * it; places only where engines need them equal. */
inline hear(d, slot) {
  judge(ENTRY(entryEpoch, d, slot), PEER(r, d));
  bits = bits | ENTRY_BIT(d, slot);
  if
  :: slot == 1 -> placeOf[d] = ENTRY(entryValue, d, slot)
  :: else
  fi;
  differs = differs || ((slot == 0 || BY_ENGINE(r)) && ENTRY(entryValue, d, slot) != VALUE(r, PEER(r, d), slot))
}

/* The whole block waits for every peer's entry record. */
inline meet(b) {
#ifndef BREAK_ENTRY_NOT_AWAITED
  do
  :: atomic { ENTRY_COMES(1, 0) -> hear(1, 0) }
  :: atomic { ENTRY_COMES(1, 1) -> hear(1, 1) }
  :: atomic { ENTRY_COMES(2, 0) -> hear(2, 0) }
  :: atomic { ENTRY_COMES(2, 1) -> hear(2, 1) }
  WAIT_ENDS(ENTRIES, (b == 0))
  od
#else
  skip
#endif
}

/* The first block to find a mismatch says so. */
inline refuse() {
  assert(DISAGREED(e)); /* no false alarm */
  atomic {
    if
    :: !refused[r] -> refused[r] = 1; voided[r] = 1; lastRefused[r] = e; passingEpoch[r] = e; isFirst = 1
    :: else
    fi
  }
  atomic {
    if
    :: isFirst -> isFirst = 0; passingKind[r] = 1
    :: else
    fi
  }
}

/* A store into a peer's output finds a peer that waits for it. */
inline store(to, at, part, stamp) {
  d_step {
    assert(!(reading[to] && place[to] == at));
    out[CELL(to, at, r, part)] = stamp
  }
}

/* This block's tiles. What only a pair knows the third cannot see before it stores. */
inline storeTiles(b) {
  distance = 1;
  do
  :: atomic {
      distance < RANKS ->
      MAY_DIE;
      assert(said[e] != 3 && (saidPair[e] != 3 || RANKS > 2));
      store(PEER(r, distance), placeOf[distance], PART(launch, b), e);
      distance++
    }
  :: atomic { distance == RANKS -> distance = 0; break }
  od
}

/* The last block to come writes the exit records, and where no engine does, the engine's in one go. */
inline finishLast() {
  atomic {
    arrived[r]++;
#ifdef BREAK_FIRST_BLOCK_EXITS
    isLast = arrived[r] == 1;
#else
    isLast = arrived[r] == BLOCKS_OF(r, launch);
#endif
    distance = (isLast -> 1 : RANKS)
  }
  do
  :: atomic {
      distance < RANKS ->
      MAY_DIE;
      exitEpoch[AT(PEER(r, distance), r)] = e;
#ifndef BREAK_EXIT_SAYS_NOTHING
      exitValue[AT(PEER(r, distance), r)] = refused[r];
#endif
#ifdef ENGINES
      if
      :: !byEngine[r] -> engineExit[AT(PEER(r, distance), r)] = e
      :: else
      fi;
#endif
      distance++
    }
  :: atomic { distance == RANKS -> distance = 0; break }
  od
}

#ifndef BREAK_EXIT_SAYS_NOTHING
#define HEAR_EXIT(d) differs = differs || exitValue[AT(r, PEER(r, d))]
#else
#define HEAR_EXIT(d) skip
#endif
inline hearExit(stamp, d, mask) {
  judge(stamp, PEER(r, d));
  bits = bits | mask
}

/* It then waits for the peers' and ends the epoch. */
inline leave() {
#ifndef BREAK_EXIT_BEFORE_STORES
  finishLast();
#endif
  if
  :: isLast ->
#ifndef BREAK_EXIT_NOT_AWAITED
#ifdef BREAK_ENGINE_NOT_AWAITED
    bits = EXITS - ((1 << (RANKS - 1)) - 1); /* as if all engines' were there */
#endif
    do
    :: atomic { EXIT_COMES(1) -> hearExit(exitEpoch[AT(r, PEER(r, 1))], 1, EXIT_BIT(1)); HEAR_EXIT(1) }
    :: atomic { EXIT_COMES(2) -> hearExit(exitEpoch[AT(r, PEER(r, 2))], 2, EXIT_BIT(2)); HEAR_EXIT(2) }
#ifdef ENGINES
    :: atomic { ENGINE_COMES(1) -> hearExit(engineExit[AT(r, PEER(r, 1))], 1, ENGINE_BIT(1)) }
    :: atomic { ENGINE_COMES(2) -> hearExit(engineExit[AT(r, PEER(r, 2))], 2, ENGINE_BIT(2)) }
#endif
    WAIT_ENDS(EXITS, true)
    od;
#endif
#ifndef BREAK_EXIT_SAYS_NOTHING
    if
    :: differs && !refused[r] -> refuse()
    :: else
    fi;
#endif
    atomic {
#ifndef BREAK_VOIDED_WHEN_ENTERING
      voided[r] = refused[r];
#endif
      arrived[r] = 0;
      refused[r] = 0;
      epoch[r] = e
    }
  :: else
  fi
}

/* exchangeKernel, by block b of launch `launch`. */
inline block(b) {
  atomic {
#ifndef BREAK_LOST_FORGOTTEN
    if
    :: lost[r] -> goto returns
    :: else
    fi;
#endif
    e = epoch[r] + 1;
    assert(e == current[r]) /* in step with what its caller began */
  }
  if
  :: b == 0 && launch == 1 -> enter()
  :: else
  fi;
  meet(b);
#ifdef BREAK_EXIT_BEFORE_STORES
  if
  :: launch == LAST_LAUNCH(r) -> finishLast()
  :: else
  fi;
#endif
  if
  :: differs -> refuse()
#ifdef BREAK_REFUSED_DOES_NOT_LEAVE
    ; goto returns
#endif
  :: !differs && STORES(r, launch) -> storeTiles(b)
  :: else
  fi;
  if
  :: launch == LAST_LAUNCH(r) -> leave()
  :: else
  fi;
  goto returns;
loses:
  lose(failed);
returns:
  atomic { /* nothing outlives the block */
    bits = 0; differs = 0; failed = nothing; isLast = 0; placeOf[1] = 0; placeOf[2] = 0; e = 0
  }
}

#define BLOCK_STATE                      \
  byte e, distance, s, bits, placeOf[3]; \
  bit differs, isFirst, isLast;          \
  mtype failed = nothing

/* The second block of each kernel. */
proctype Second(byte r) {
  BLOCK_STATE;
  byte launch;
end_idle:
  do
  :: secondBlock[r] ->
    launch = secondBlock[r];
    block(1);
    launch = 0;
    secondBlock[r] = 0
  od;
DIES
}

#ifdef ENGINES
/* A stream to one peer. Nothing stops what is queued: not a mismatch, not a lost world. What a lost rank's engine still
 * writes is documented to void outputs, also those of the rank that did not come; `overrun` remembers whose. */
proctype Engine(byte r; byte to) {
end_idle:
  do
  :: atomic {
      engineRuns[AT(r, to)] ->
      MAY_DIE;
#ifdef BREAK_ENGINE_TELLS_FIRST
      engineExit[AT(to, r)] = entered[r]
    }
    atomic {
#endif
      if
      :: lost[r] && (reading[to] || current[to] != current[r]) ->
#ifdef NO_OVERRUN
        assert(!reading[to]);
#endif
        overrun[to] = 1;
        out[CELL(to, place[r], r, PARTS - 1)] = current[r]
      :: else -> store(to, place[r], PARTS - 1, current[r])
      fi
    };
    atomic {
      MAY_DIE;
#ifndef BREAK_ENGINE_TELLS_FIRST
      engineExit[AT(to, r)] = entered[r];
#endif
      engineRuns[AT(r, to)] = 0
    }
  od;
DIES
}
#endif

#ifdef ENGINES
#define INTACT(r) (!overrun[r])
#else
#define INTACT(r) true
#endif

/* The rank's output holds this exchange's data of every peer, all of it. */
inline checkOutput() {
  d_step {
    distance = 1;
    do
    :: distance < RANKS ->
      s = 0;
      do
      :: s < PARTS -> assert(out[CELL(r, place[r], PEER(r, distance), s)] == current[r]); s++
      :: else -> break
      od;
      distance++
    :: else -> break
    od;
    distance = 0; s = 0
  }
}

/* Its caller has read the output of the exchange before, and means something by the next. */
inline begin() {
  atomic {
    if
    :: reading[r] && INTACT(r) -> checkOutput()
    :: else
    fi;
    reading[r] = 0;
    current[r]++;
    meaning[r] = current[r] % 2; /* calls alternate, so what a stale record says is never right */
#ifdef ENGINES
    byEngine[r] = 1;
#endif
#ifdef MISMATCH
    if
    :: r == RANKS - 1 -> meaning[r] = 1 - meaning[r]
#ifdef ENGINES
    :: r == RANKS - 1 -> meaning[r] = 1 - meaning[r]; byEngine[r] = 0
#endif
    :: true
    fi;
#endif
#ifdef PAIR
    if
    :: r == 1 -> pairWord[r] = 1
    :: pairWord[r] = 0
    fi;
#endif
#if PLACES == 2
    if
    :: place[r] = 0
    :: place[r] = 1
    fi;
#endif
    said[current[r]] = said[current[r]] | (1 << meaning[r]);
    saidPlace[current[r]] = saidPlace[current[r]] | (1 << place[r]);
    if
    :: r < 2 -> saidPair[current[r]] = saidPair[current[r]] | (1 << pairWord[r])
    :: else
    fi
#ifdef ENGINES
    ;
    overrunBefore = overrun[r]
#endif
  }
}

/* How an exchange ended, as its caller sees it: `final` is told for ever, and what follows looks at `voided`. */
inline end() {
  atomic {
#ifdef ENGINES
    WAIT_FOR(!engineRuns[AT(r, PEER(r, 1))] && (RANKS == 2 || !engineRuns[AT(r, PEER(r, 2))]));
#endif
    if
    :: final[r] != nothing -> assert(lost[r] && voided[r])
    :: final[r] == nothing && lastRefused[r] == current[r] -> assert(voided[r] && !lost[r])
    :: else ->
      assert(!voided[r] && !lost[r]);
      assert(!DISAGREED(current[r])); /* every rank finds out */
#ifdef ENGINES
      assert(!overrunBefore); /* a rank whose output was overrun never succeeds again */
#endif
      if
      :: INTACT(r) -> checkOutput()
      :: else
      fi;
      reading[r] = 1
    fi
  }
}

/* Once the first kernel of copy_engine has ended, whatever it found. */
inline startEngines() {
#ifdef ENGINES
  if
  :: ONLY_MEETS(r, launch) ->
    engineRuns[AT(r, PEER(r, 1))] = 1;
    engineRuns[AT(r, PEER(r, RANKS - 1))] = 1
  :: else
  fi
#else
  skip
#endif
}

proctype Rank(byte r) {
  BLOCK_STATE;
  byte launch;
#ifdef ENGINES
  bit overrunBefore;
#endif
  do
  :: current[r] < EXCHANGES ->
    begin();
    do
    :: atomic {
        launch < LAST_LAUNCH(r) ->
        launch++;
        if
        :: BLOCKS_OF(r, launch) == 2 -> secondBlock[r] = launch
        :: else
        fi
      }
      block(0);
      atomic {
        WAIT_FOR(secondBlock[r] == 0);
        startEngines()
      }
    :: atomic { launch == LAST_LAUNCH(r) -> launch = 0; break }
    od;
    end()
  :: current[r] == EXCHANGES -> break
  /* its host makes no more calls; what was enqueued before goes on above */
  :: final[r] != nothing || abortWord[r] -> break
  od;
  finished[r] = 1;
DIES
}

#ifdef HOST
/* Rank 0's host asks whenever something has been reported, and a last time after the end. What it was told last is the
 * last mismatch there was: none is lost between the device that reports and the host that clears. */
proctype Host() {
  byte heard;
  do
  :: passingKind[0] ->
#ifndef BREAK_REPORT_READ_FIRST
    passingKind[0] = 0;
    heard = passingEpoch[0]
#else
    heard = passingEpoch[0];
    passingKind[0] = 0
#endif
  :: finished[0] && !passingKind[0] -> break
  od;
  assert(heard == lastRefused[0])
}
#endif

#ifdef ABORT
proctype Breaker() {
  abortWord[0] = 1
}
#endif

init {
  byte r, distance;
  atomic {
    do
    :: r < RANKS ->
      run Rank(r);
#if BLOCKS == 2
      run Second(r);
#endif
#ifdef ENGINES
      distance = 1;
      do
      :: distance < RANKS -> run Engine(r, PEER(r, distance)); distance++
      :: else -> break
      od;
#endif
      r++
    :: else -> break
    od;
#ifdef HOST
    run Host();
#endif
#ifdef ABORT
    run Breaker();
#endif
    r = 0; distance = 0
  }
}
