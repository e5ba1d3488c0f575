// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"os/exec"
	"path"
	"runtime"
	"strings"

	"github.com/vishvananda/netns"
)

// Run runs a program in a named network namespace, with text as its input. The error holds
// the output of the program.
func Run(ns, text string, argv ...string) error {
	_, err := Output(ns, text, argv...)
	return err
}

// Output is Run for a program whose output is wanted.
func Output(ns, text string, argv ...string) (output []byte, err error) {
	err = Inside(ns, func() error {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin = strings.NewReader(text)
		var complaint strings.Builder
		cmd.Stderr = &complaint
		if output, err = cmd.Output(); err != nil {
			return fmt.Errorf("%s in %s: %s%s: %w", strings.Join(argv, " "), path.Base(ns), output, strings.TrimSpace(complaint.String()), err)
		}
		return nil
	})
	return output, err
}

// Inside calls do on a thread that is in a named network namespace.
func Inside(ns string, do func() error) error {
	result := make(chan error, 1)
	go func() {
		// The thread is not unlocked: it ends with the goroutine and takes the namespace along.
		runtime.LockOSThread()
		handle, err := netns.GetFromPath(ns)
		if err != nil {
			result <- fmt.Errorf("open network namespace %s: %w", ns, err)
			return
		}
		defer func() { _ = handle.Close() }()
		if err := netns.Set(handle); err != nil {
			result <- fmt.Errorf("enter network namespace %s: %w", ns, err)
			return
		}
		result <- do()
	}()
	return <-result
}
