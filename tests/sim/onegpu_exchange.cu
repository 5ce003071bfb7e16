// SPDX-License-Identifier: MIT
//
// The exchange kernel under another launcher's name: onegpu_launch.c launches it for ranks that share a GPU.

#define ulyxLaunchExchange ulyxLaunchExchangeAlone
#include "../../cuda/exchange.cu"
