// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	linger = 0
	os.Exit(m.Run())
}

const (
	testProducts = `[{"id": "espresso-pot", "name": "Espresso pot", "description": "d", "currency": "EUR", "cents": 2990},
		{"id": "bell", "name": "Bell", "description": "d", "currency": "EUR", "cents": 1150}]`
	testRates = `{"EUR": 1, "CHF": 0.94}`
)

// testShop is a shop whose services run in this process, each at its own address.
type testShop struct {
	t        *testing.T
	config   config
	services map[string]*service
	redis    fakeRedis
}

// service is one running service.
type service struct {
	address  string
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	ended    chan error
}

func placeOf(service string) place {
	node := map[bool]string{true: "rome-worker", false: "milan-worker"}[service == "frontend"]
	return place{Service: service, Node: node, Pod: service + "-pod", Namespace: "remote-of-" + service}
}

// open starts the named services, or all that the page needs.
func open(t *testing.T, names ...string) *testShop {
	t.Helper()
	if len(names) == 0 {
		names = services
	}
	dir := t.TempDir()
	m := &testShop{t: t, services: map[string]*service{}, redis: fakeRedis{password: "secret", ident: "milan-worker/redis-pod/remote-of-redis"}}
	m.config = config{data: dir, redisAuth: filepath.Join(dir, "auth.conf")}
	for name, text := range map[string]string{"products.json": testProducts, "rates.json": testRates, "auth.conf": "requirepass secret\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, address := range map[string]*string{
		"catalogue": &m.config.catalogue, "cart": &m.config.cart, "currency": &m.config.currency, "shipping": &m.config.shipping,
		"recommendation": &m.config.recommendation, "orders": &m.config.orders, "redis": &m.config.redis, "frontend": nil, "hello": nil,
	} {
		s := &service{}
		s.listen(t, ownAddress())
		if m.services[name] = s; address != nil {
			*address = s.address
		}
		if !slices.Contains(names, name) {
			_ = s.listener.Close()
		}
	}
	for _, name := range names {
		m.start(name)
	}
	t.Cleanup(func() {
		for name := range maps.Keys(m.services) {
			m.stop(name)
		}
	})
	return m
}

// ownAddress is a loopback address that no other process uses: the port of a service that is stopped stays free until it is started again. At 127.0.0.1,
// another process, or an outgoing connection, could take it.
func ownAddress() string {
	return fmt.Sprintf("127.%d.%d.%d:0", 1+rand.N(254), rand.N(256), 1+rand.N(254))
}

func (s *service) listen(t *testing.T, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s.listener, s.address = listener, listener.Addr().String()
}

// start serves until cancel.
func (s *service) start(serve func(*service) error) {
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.ended = make(chan error, 1)
	go func() { s.ended <- serve(s) }()
}

func serveInTest(t *testing.T, serve func(*service) error) *service {
	t.Helper()
	s := &service{}
	s.listen(t, "127.0.0.1:0")
	s.start(serve)
	t.Cleanup(s.cancel)
	return s
}

// start starts a service, at its previous address if it was stopped.
func (m *testShop) start(name string) {
	m.t.Helper()
	s := m.services[name]
	if s.listener == nil {
		s.listen(m.t, s.address)
	}
	c := m.config
	c.place = placeOf(name)
	s.start(func(s *service) error {
		if name == "redis" {
			return m.redis.serve(s.ctx, s.listener)
		}
		return roles[name](s.ctx, c, s.listener)
	})
}

func (m *testShop) stop(name string) {
	m.t.Helper()
	s := m.services[name]
	if s.listener == nil || s.cancel == nil {
		return
	}
	s.cancel()
	if err := <-s.ended; err != nil {
		m.t.Errorf("%s ended with %v", name, err)
	}
	_ = s.listener.Close()
	s.listener = nil
}

// silence replaces a service by one that accepts connections and sends nothing.
func (m *testShop) silence(name string) {
	m.t.Helper()
	s := m.services[name]
	s.listen(m.t, s.address)
	s.start(func(s *service) error {
		<-s.ctx.Done()
		return s.listener.Close()
	})
}

// eventually waits until a condition holds. The timeout only guards against hanging.
func (m *testShop) eventually(what string, holds func() bool) {
	m.t.Helper()
	const timeout = time.Minute
	for end := time.Now().Add(timeout); !holds(); {
		if time.Now().After(end) {
			m.t.Fatalf("not within %s: %s", timeout, what)
		}
	}
}

// browser is one user.
type browser struct {
	t      *testing.T
	client http.Client
	at     string
}

func (m *testShop) browser() *browser { return m.browserOf("frontend") }

func (m *testShop) browserOf(service string) *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		m.t.Fatal(err)
	}
	return &browser{m.t, http.Client{Jar: jar, Timeout: time.Minute}, "http://" + m.services[service].address}
}

type answer struct {
	t      *testing.T
	body   string
	status int
	header http.Header
}

func (b *browser) get(path string) answer {
	b.t.Helper()
	return b.read(b.client.Get(b.at + path))
}

func (b *browser) read(response *http.Response, err error) answer {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	_, text, styled := strings.Cut(string(body), "<main>") // without the styles
	if !styled {
		text = string(body)
	}
	return answer{b.t, text, response.StatusCode, response.Header}
}

func (r answer) has(texts ...string) answer {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.body, text) {
			r.t.Errorf("the page does not have %q:\n%s", text, r.body)
		}
	}
	return r
}

func (r answer) hasNot(texts ...string) answer {
	r.t.Helper()
	for _, text := range texts {
		if strings.Contains(r.body, text) {
			r.t.Errorf("the page has %q:\n%s", text, r.body)
		}
	}
	return r
}

func (r answer) code(want int) answer {
	r.t.Helper()
	if r.status != want {
		r.t.Errorf("status %d, want %d:\n%s", r.status, want, r.body)
	}
	return r
}

// fakeRedis answers the commands that cart and orders use, as Redis 7 does. It loses its data when serve returns.
type fakeRedis struct {
	password, ident string

	mu      sync.Mutex
	strings map[string]string
	hashes  map[string]map[string]int
}

func (f *fakeRedis) serve(ctx context.Context, listener net.Listener) error {
	f.mu.Lock()
	f.strings, f.hashes = map[string]string{}, map[string]map[string]int{}
	f.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		connection, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go f.talk(connection)
	}
}

func (f *fakeRedis) talk(connection net.Conn) {
	defer func() { _ = connection.Close() }()
	reader, known := bufio.NewReader(connection), false
	for {
		command, err := readCommand(reader)
		if err != nil {
			return
		}
		reply := "-NOAUTH Authentication required.\r\n"
		switch {
		case command[0] == "AUTH":
			if known = command[1] == f.password; known {
				reply = "+OK\r\n"
			} else {
				reply = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
			}
		case known:
			reply = f.do(command)
		}
		if _, err := io.WriteString(connection, reply); err != nil {
			return
		}
	}
}

func readCommand(from *bufio.Reader) ([]string, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return nil, err
	}
	words, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	if err != nil {
		return nil, err
	}
	var command []string
	for range words {
		if line, err = from.ReadString('\n'); err != nil {
			return nil, err
		}
		size, err := strconv.Atoi(strings.TrimSpace(line[1:]))
		if err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(from, word); err != nil {
			return nil, err
		}
		command = append(command, string(word[:size]))
	}
	return command, nil
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

func (f *fakeRedis) do(command []string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch command[0] {
	case "PING":
		return "+PONG\r\n"
	case "CONFIG":
		return "*2\r\n" + bulk("syslog-ident") + bulk(f.ident)
	case "HINCRBY":
		if f.hashes[command[1]] == nil {
			f.hashes[command[1]] = map[string]int{}
		}
		by, _ := strconv.Atoi(command[3])
		f.hashes[command[1]][command[2]] += by
		return fmt.Sprintf(":%d\r\n", f.hashes[command[1]][command[2]])
	case "HGETALL":
		list := fmt.Sprintf("*%d\r\n", 2*len(f.hashes[command[1]]))
		for name, value := range f.hashes[command[1]] {
			list += bulk(name) + bulk(strconv.Itoa(value))
		}
		return list
	case "EXPIRE":
		return ":1\r\n"
	case "DEL":
		delete(f.hashes, command[1])
		return ":1\r\n"
	case "GET", "SET": // SET with NX GET, which returns the old value
		old, ok := f.strings[command[1]]
		if command[0] == "SET" && !ok {
			f.strings[command[1]] = command[2]
		}
		if !ok {
			return "$-1\r\n"
		}
		return bulk(old)
	}
	return "-ERR unknown command\r\n"
}
