// SPDX-License-Identifier: Apache-2.0

// Package disruption decides which disruption budget a peer gets for one of this cluster: a number of pods of one node that must stay healthy there.
//
// It is pure. It knows neither clients nor clocks; package objects brings what is known of pods and budgets, and writes what is decided. Its tests are rows,
// and a random walk that never lets a drain break a budget.
package disruption
