// SPDX-License-Identifier: Apache-2.0

// Package redis is a client of a Redis server. Each call opens a connection and sends all its commands in one write, which
// costs one round trip. So a server that restarts in another cluster leaves no stale connections.
//
// It must not know what is stored. redis_test.go proves it.
package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
)

const (
	maxBytes = 1 << 20 // of one string in an answer
	maxItems = 4096    // of one list in an answer
	maxDepth = 4
)

// ErrAnswer means that the response is not one of a Redis server.
var ErrAnswer = errors.New("unusable answer")

// Error is the server's error for a command.
type Error string

func (e Error) Error() string { return "redis: " + string(e) }

// Client calls the server at Address.
type Client struct {
	Address string
	// AuthFile is the part of the server's configuration that holds requirepass. It is read for each call, since
	// a Secret may change. Empty: no password.
	AuthFile string
}

// Do sends commands and returns an answer for each: a string, an int64, a []any, or nil. The first error of the server
// among the answers is returned as Error.
func (c *Client) Do(ctx context.Context, commands ...[]string) ([]any, error) {
	answers, err := c.ask(ctx, commands)
	if err != nil {
		return nil, fmt.Errorf("ask redis at %s: %w", c.Address, err)
	}
	return answers, nil
}

func (c *Client) ask(ctx context.Context, commands [][]string) (_ []any, err error) {
	password, err := c.password()
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", c.Address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	// The end of the context ends reads and writes.
	stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
	defer stop()
	var request strings.Builder
	if password != "" {
		encode(&request, []string{"AUTH", password})
	}
	for _, command := range commands {
		encode(&request, command)
	}
	if _, err := io.WriteString(connection, request.String()); err != nil {
		return nil, because(ctx, err)
	}
	reader := bufio.NewReader(connection)
	if password != "" {
		if _, err := read(reader, 0); err != nil {
			return nil, because(ctx, err)
		}
	}
	answers := make([]any, 0, len(commands))
	for range commands {
		answer, err := read(reader, 0)
		if err != nil {
			return nil, because(ctx, err)
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

// because returns the reason why the connection was closed, if there is one, instead of the error that it is closed.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// password reads the password from the configuration of the server.
func (c *Client) password() (string, error) {
	if c.AuthFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(c.AuthFile)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "requirepass" {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("%s has no line \"requirepass PASSWORD\"", c.AuthFile)
}

func encode(to *strings.Builder, command []string) {
	_, _ = fmt.Fprintf(to, "*%d\r\n", len(command))
	for _, word := range command {
		_, _ = fmt.Fprintf(to, "$%d\r\n%s\r\n", len(word), word)
	}
}

func read(from *bufio.Reader, depth int) (any, error) {
	line, err := from.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	text := strings.TrimSuffix(string(line), "\r\n")
	if text == "" || depth > maxDepth {
		return nil, fmt.Errorf("%w: an empty line, or lists in lists", ErrAnswer)
	}
	kind, rest := text[0], text[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, Error(rest)
	}
	number, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: %.40q", ErrAnswer, text)
	}
	switch {
	case kind == ':':
		return number, nil
	case (kind == '$' || kind == '*') && number == -1:
		return nil, nil
	case kind == '$' && number >= 0 && number <= maxBytes:
		data := make([]byte, number+2)
		if _, err := io.ReadFull(from, data); err != nil {
			return nil, err
		}
		return string(data[:number]), nil
	case kind == '*' && number >= 0 && number <= maxItems:
		list := make([]any, 0, number)
		for range number {
			item, err := read(from, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		return list, nil
	}
	return nil, fmt.Errorf("%w: %.40q", ErrAnswer, text)
}
