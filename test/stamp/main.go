// SPDX-License-Identifier: Apache-2.0

// Command stamp is what runs in the pods of the tests of faults. It says in its log and in its termination message which run this is: a word
// that no other run has, for which pod, from when to when. So each run leaves a trace that neither API server had a part in.
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

// Exit codes: stopped by a signal, and the wish to be started again.
const (
	stopped = 7
	again   = 3
)

func main() {
	lasting := flag.Duration("for", 0, "end after this time; 0: run until told to stop")
	once := flag.String("once-again", "", "an absolute path on a volume: if there is no such file, make it and end with exit code 3 after a second")
	message := flag.String("message", "/dev/termination-log", "where the last words go")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	code, err := live(ctx, *lasting, *once, *message)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stamp:", err)
		code = 1
	}
	os.Exit(code)
}

func live(ctx context.Context, lasting time.Duration, once, message string) (code int, err error) {
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return 0, fmt.Errorf("word of this run: %w", err)
	}
	words := fmt.Sprintf("run %s for pod %s from %s", hex.EncodeToString(random), os.Getenv("FOR_POD"), time.Now().UTC().Format(time.RFC3339Nano))
	fmt.Println(words)
	if once != "" {
		file, err := os.OpenFile(once, os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			lasting, code, err = time.Second, again, file.Close()
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
	words = fmt.Sprintf("%s to %s code %d", words, time.Now().UTC().Format(time.RFC3339Nano), code)
	fmt.Println(words)
	return code, os.WriteFile(message, []byte(words), 0o600)
}
