// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// answering starts a server that sends this text on each connection. The channel returns what it received.
func answering(t *testing.T, text string) (string, <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	asked := make(chan string, 1)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(connection, text)
			if text != "" {
				_ = connection.(*net.TCPConn).CloseWrite()
			}
			request, _ := io.ReadAll(connection)
			_ = connection.Close()
			asked <- string(request)
		}
	}()
	return listener.Addr().String(), asked
}

func TestAnswers(t *testing.T) {
	address, asked := answering(t, "+PONG\r\n:-7\r\n$5\r\na\r\nbc\r\n$-1\r\n*3\r\n$1\r\nx\r\n:1\r\n*-1\r\n*0\r\n")
	client := Client{Address: address}
	got, err := client.Do(t.Context(), []string{"PING"}, []string{"SET", "k", "v\r\nw"}, []string{"A"}, []string{"B"}, []string{"C"}, []string{"D"})
	want := []any{"PONG", int64(-7), "a\r\nbc", nil, []any{"x", int64(1), nil}, []any{}}
	if err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("error %v, difference:\n%s", err, cmp.Diff(want, got))
	}
	const request = "*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nv\r\nw\r\n*1\r\n$1\r\nA\r\n"
	if text := <-asked; !strings.HasPrefix(text, request) {
		t.Errorf("asked %q, want %q first", text, request)
	}
}

func TestPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth.conf")
	client := Client{AuthFile: file}
	ask := func(text, answer string) (string, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		address, asked := answering(t, answer)
		client.Address = address
		if _, err := client.Do(t.Context(), []string{"PING"}); err != nil {
			return "", err
		}
		return <-asked, nil
	}
	if text, err := ask("# a comment\nrequirepass secret\n", "+OK\r\n+PONG\r\n"); err != nil || !strings.HasPrefix(text, "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n") {
		t.Errorf("asked %q, error %v", text, err)
	}
	if text, err := ask("requirepass another\n", "+OK\r\n+PONG\r\n"); err != nil || !strings.Contains(text, "another") {
		t.Errorf("after a change: asked %q, error %v", text, err)
	}
	_, err := ask("requirepass wrong\n", "-WRONGPASS invalid\r\n-NOAUTH\r\n")
	if refused := Error(""); !errors.As(err, &refused) || refused != "WRONGPASS invalid" || strings.Contains(err.Error(), "wrong\n") {
		t.Errorf("a wrong password gave %v", err)
	}
	if _, err := ask("requirepass\n", ""); err == nil || !strings.Contains(err.Error(), "has no line") {
		t.Errorf("no password gave %v", err)
	}
}

func TestUnusableAnswers(t *testing.T) {
	for name, text := range map[string]string{
		"an empty line": "\r\n", "a web server": "HTTP/1.1 400 Bad Request\r\n", "no number": ":x\r\n", "a string without end": "$99999999999\r\n",
		"a list without end": "*99999999\r\n", "lists in lists": strings.Repeat("*1\r\n", 10) + ":1\r\n", "a length below nothing": "$-2\r\n",
	} {
		address, _ := answering(t, text)
		if _, err := (&Client{Address: address}).Do(t.Context(), []string{"PING"}); !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: error %v, want %v", name, err, ErrAnswer)
		}
	}
	for name, text := range map[string]string{
		"cut in a line": "+PO", "cut in a string": "$5\r\nab", "cut in a list": "*2\r\n:1\r\n",
		"a line without end": "+" + strings.Repeat("x", 10_000),
	} {
		address, _ := answering(t, text)
		_, err := (&Client{Address: address}).Do(t.Context(), []string{"PING"})
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, bufio.ErrBufferFull) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestSilentServer(t *testing.T) {
	address, _ := answering(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := (&Client{Address: address}).Do(ctx, []string{"PING"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestServerThatIsNotThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	_, err = (&Client{Address: listener.Addr().String()}).Do(t.Context(), []string{"PING"})
	if want := fmt.Sprintf("ask redis at %s: ", listener.Addr()); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
