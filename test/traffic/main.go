// SPDX-License-Identifier: Apache-2.0

// Command traffic is both ends of the traffic of the network's end-to-end tests: a server that returns the client's address, clients that
// count lost requests and the length of gaps, a sender of packets with forged addresses, a capture that searches packets for a word, and a client that holds
// all connections of a server that it can get.
//
// It prints JSON, one value per line, and knows nothing of Kubernetes or the product: it runs in a pod or, through nsenter, in the network
// namespace of a pod. The playground's demo program has clients as well, but they report averages; these report exactly when which
// connection stalled. Proof: main_test.go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
)

const usage = `traffic serve    [--port 7000]                               TCP echo, UDP echo on PORT, HTTP on PORT+1
traffic stream   [--every 50ms] NAME=ADDRESS:PORT...         one connection for each target, one request each 50 ms
traffic bulk     [--every 10ms] NAME=ADDRESS:PORT...         the same with blocks of 32 KiB
traffic requests [--every 50ms] NAME=ADDRESS:PORT...         a new connection for each request
traffic check    http|udp|icmp ADDRESS:PORT [--bytes 1]      one request; prints the source address that the server saw
traffic send     --link L --from A --to A:PORT --word W      UDP packets with any source address, out of a link
traffic capture  --word W                                    counts frames of all links, and those that contain the word
traffic hold     ADDRESS:PORT [--connections 400]            opens TLS connections and keeps what it gets, as a hostile client does
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "traffic:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	commands := map[string]func(context.Context, []string, *printer) error{
		"serve": serve, "stream": stream, "bulk": bulk, "requests": requests, "check": check, "send": send, "capture": capture, "hold": hold,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return fmt.Errorf("unknown command\n%s", strings.TrimSpace(usage))
	}
	return commands[args[0]](ctx, args[1:], &printer{to: json.NewEncoder(out)})
}

// printer prints one JSON value per line, from many goroutines.
type printer struct {
	mu sync.Mutex
	to *json.Encoder
}

func (p *printer) print(value any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.to.Encode(value)
}

// parse parses flags before or after the other arguments, which it returns.
func parse(flags *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return rest, nil
		}
		rest, args = append(rest, flags.Arg(0)), flags.Args()[1:]
	}
}

// target is a server with the name under which it is reported.
type target struct{ name, address string }

func parseTargets(args []string) (all []target, err error) {
	for _, arg := range args {
		name, address, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("target %q: want NAME=ADDRESS:PORT", arg)
		}
		all = append(all, target{name, address})
	}
	if len(all) == 0 {
		return nil, errors.New("no target")
	}
	return all, nil
}
