// SPDX-License-Identifier: Apache-2.0

// Command stamp runs in the pods of test/faults. It writes to its log and to its termination message a random ID of this run, the UID of
// its pod, and when the run started and ended. So each run leaves a record that does not depend on an API server.
//
// It knows nothing of the product: environment, clock, signals. Proof: main_test.go.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Exit codes: stopped by a signal, and a request to be restarted.
const (
	stopped = 7
	restart = 3
)

func main() {
	lasting := flag.Duration("for", 0, "end after this time; 0: run until a signal")
	once := flag.String("once-again", "", "an absolute path on a volume: if there is no such file, make it and end with exit code 3 after a second")
	message := flag.String("message", "/dev/termination-log", "file of the termination message")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	code, err := execute(ctx, *lasting, *once, *message)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stamp:", err)
		code = 1
	}
	os.Exit(code)
}

func execute(ctx context.Context, lasting time.Duration, once, message string) (code int, err error) {
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return 0, fmt.Errorf("ID of this run: %w", err)
	}
	text := fmt.Sprintf("run %s for pod %s from %s", hex.EncodeToString(random), os.Getenv("FOR_POD"), time.Now().UTC().Format(time.RFC3339Nano))
	fmt.Println(text)
	if once != "" {
		file, err := os.OpenFile(once, os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			lasting, code, err = time.Second, restart, file.Close()
		}
		if err != nil && !os.IsExist(err) {
			return 0, err
		}
	}
	var over <-chan time.Time
	if lasting > 0 {
		over = time.After(lasting)
	}
	select {
	case <-over:
	case <-ctx.Done():
		code = stopped
	}
	text = fmt.Sprintf("%s to %s code %d", text, time.Now().UTC().Format(time.RFC3339Nano), code)
	fmt.Println(text)
	return code, os.WriteFile(message, []byte(text), 0o600)
}
