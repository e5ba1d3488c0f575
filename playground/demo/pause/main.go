// SPDX-License-Identifier: Apache-2.0

// Command pause is the first process of every pod: it holds the pod's namespaces
// open, reaps what is orphaned into it when the pod shares process ids, and ends on
// SIGTERM. It must know nothing else and use no memory worth counting. Proof:
// main_test.go.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() { pause(listen()) }

func listen() <-chan os.Signal {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	return signals
}

// pause returns on the first signal that asks to end.
func pause(signals <-chan os.Signal) {
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap collects every child that has ended; one signal may stand for many.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil && err != syscall.ECHILD:
			fmt.Fprintln(os.Stderr, "pause: wait for children:", err)
			return
		case pid <= 0:
			return
		}
	}
}
