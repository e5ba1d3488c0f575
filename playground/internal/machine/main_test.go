// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"testing"

	"liqo.io/liqo/playground/internal/machine"
)

// group is the cgroup of the machines of this test, apart from a real playground's.
const group = "liqo-playground-test"

// TestMain lets the test program be what it starts: Start runs this very program with the
// hidden arguments, as the playground does.
func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == machine.LaunchCommand:
		err = machine.Launch(os.Args[2], group)
	case len(os.Args) == 3 && os.Args[1] == machine.InitCommand:
		err = machine.Init()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
