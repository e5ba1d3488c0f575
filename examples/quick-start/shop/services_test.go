// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"liqo.io/liqo/examples/quick-start/shop/wire"
)

func (m *testShop) dial(service string) *grpc.ClientConn {
	m.t.Helper()
	connection, err := dial(m.services[service].address, orderTimeout)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func (m *testShop) health(service, of string) healthv1.HealthCheckResponse_ServingStatus {
	m.t.Helper()
	reply, err := healthv1.NewHealthClient(m.dial(service)).Check(m.t.Context(), &healthv1.HealthCheckRequest{Service: of})
	if err != nil {
		m.t.Fatalf("health of %s: %v", service, err)
	}
	return reply.GetStatus()
}

// Readiness is determined at each probe; liveness does not depend on it.
func TestReadiness(t *testing.T) {
	const yes, no = healthv1.HealthCheckResponse_SERVING, healthv1.HealthCheckResponse_NOT_SERVING
	m := open(t)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(m.config.data, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		what string
		do   func()
		not  []string
	}{
		{"all there", func() {}, nil},
		{"another password", func() { write("auth.conf", "requirepass wrong\n") }, []string{"cart"}},
		{"no password", func() { write("auth.conf", "\n") }, []string{"cart"}},
		{"the password again", func() { write("auth.conf", "requirepass secret\n") }, nil},
		{"products that are none", func() { write("products.json", "[{}]") }, []string{"catalogue"}},
		{"rates that are none", func() { write("rates.json", `{"EUR": 0}`) }, []string{"catalogue", "currency"}},
		{"both again", func() { write("products.json", testProducts); write("rates.json", testRates) }, nil},
		{"redis gone", func() { m.stop("redis") }, []string{"cart"}},
		{"redis back", func() { m.start("redis") }, nil},
	} {
		step.do()
		for _, service := range []string{"catalogue", "cart", "currency", "shipping", "orders"} {
			want := yes
			if slices.Contains(step.not, service) {
				want = no
			}
			if got := m.health(service, readiness); got != want {
				t.Errorf("%s: %s is %s, want %s", step.what, service, got, want)
			}
			if got := m.health(service, ""); got != yes {
				t.Errorf("%s: the process of %s is %s", step.what, service, got)
			}
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	m := open(t)
	ctx := t.Context()
	cart, currency, shipping, orders := wire.NewCartClient(m.dial("cart")), wire.NewCurrencyClient(m.dial("currency")),
		wire.NewShippingClient(m.dial("shipping")), wire.NewOrdersClient(m.dial("orders"))
	call := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"cart without user":        call(cart.Get(ctx, &wire.CartRequest{})),
		"cart to clear":            call(cart.Clear(ctx, &wire.CartRequest{User: "a:b"})),
		"nothing to add":           call(cart.Add(ctx, &wire.AddRequest{User: "u"})),
		"less than nothing to add": call(cart.Add(ctx, &wire.AddRequest{User: "u", Item: &wire.Item{Product: "bell", Quantity: -1}})),
		"negative amount":          call(currency.Convert(ctx, &wire.ConvertRequest{To: "EUR", Amounts: []*wire.Money{{Currency: "EUR", Cents: -1}}})),
		"unknown currency":         call(currency.Convert(ctx, &wire.ConvertRequest{To: "EUR", Amounts: []*wire.Money{{Currency: "XXX", Cents: 1}}})),
		"too many amounts": call(currency.Convert(ctx, &wire.ConvertRequest{
			To: "EUR", Amounts: slices.Repeat([]*wire.Money{{Currency: "EUR"}}, maxAmounts+1),
		})),
		"nothing to ship":      call(shipping.Quote(ctx, &wire.QuoteRequest{})),
		"order without number": call(orders.Place(ctx, &wire.PlaceRequest{User: "u", Currency: "EUR"})),
	} {
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want %s", name, err, codes.InvalidArgument)
		}
	}
}

func TestBadData(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "cannot unmarshal", `[{"id": "A B"}]`: "product 1 (\"A B\") needs", `[{"id": "a", "name": "A", "currency": "EUR", "cents": 0}]`: "cents above 0",
	} {
		file := filepath.Join(t.TempDir(), "products.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (&catalogue{file: file}).products(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// Concurrent requests with one number place one order.
func TestOneOrderPerNumber(t *testing.T) {
	m := open(t)
	cart, orders := wire.NewCartClient(m.dial("cart")), wire.NewOrdersClient(m.dial("orders"))
	if _, err := cart.Add(t.Context(), &wire.AddRequest{User: "u", Item: &wire.Item{Product: "bell", Quantity: 3}}); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	placed := make([]*wire.Order, 16)
	for i := range placed {
		wait.Go(func() {
			var err error
			if placed[i], err = orders.Place(t.Context(), &wire.PlaceRequest{User: "u", Number: "n", Currency: "EUR"}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for _, order := range placed {
		if !proto.Equal(order, placed[0]) || order.GetTotal().GetCents() != 3*1150+390 {
			t.Errorf("one got %v, another %v", order, placed[0])
		}
	}
}

// An order that is placed stays placed if the cart goes down before it was emptied.
func TestCartThatStaysFull(t *testing.T) {
	m := open(t)
	ctx := t.Context()
	order, err := (&orders{
		catalogue: wire.NewCatalogueClient(m.dial("catalogue")), cart: brokenCart{}, currency: wire.NewCurrencyClient(m.dial("currency")),
		shipping: wire.NewShippingClient(m.dial("shipping")), store: memory{},
	}).Place(ctx, &wire.PlaceRequest{User: "u", Number: "n", Currency: "EUR"})
	if err != nil || !strings.Contains(order.GetNote(), "could not be emptied: not reachable: gone") {
		t.Errorf("order %v, error %v", order, err)
	}
}

type brokenCart struct{ wire.CartClient }

func (brokenCart) Get(context.Context, *wire.CartRequest, ...grpc.CallOption) (*wire.CartReply, error) {
	return &wire.CartReply{Items: []*wire.Item{{Product: "bell", Quantity: 1}}}, nil
}

func (brokenCart) Clear(context.Context, *wire.CartRequest, ...grpc.CallOption) (*wire.CartReply, error) {
	return nil, status.Error(codes.Unavailable, "gone")
}

// memory is a store without orders.
type memory struct{}

func (memory) Do(_ context.Context, commands ...[]string) ([]any, error) {
	return make([]any, len(commands)), nil
}

func TestForeignCart(t *testing.T) {
	for name, list := range map[string][]any{
		"a name of nothing": {"bell"}, "no number": {"bell", "x"}, "no text": {int64(1), int64(2)}, "a strange name": {"../bell", "1"},
	} {
		if _, err := cartReply([]any{list}, nil); status.Code(err) != codes.DataLoss {
			t.Errorf("%s: %v, want %s", name, err, codes.DataLoss)
		}
	}
	if _, err := cartReply(nil, errors.New("refused")); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want %s", err, codes.Unavailable)
	}
}

func TestRecommend(t *testing.T) {
	var products []*wire.Product
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		products = append(products, &wire.Product{Id: id})
	}
	first := recommend(products, []string{"a", "b"})
	if len(first) != howMany || slices.Contains(first, "a") || slices.Contains(first, "b") {
		t.Errorf("recommended %v", first)
	}
	if again := recommend(products, []string{"a", "b"}); !slices.Equal(first, again) {
		t.Errorf("recommended %v, then %v", first, again)
	}
	if none := recommend(nil, nil); none == nil || len(none) != 0 {
		t.Errorf("of nothing recommended %v", none)
	}
}

// A trail in a received header is bounded, and invalid entries are dropped.
func TestTrail(t *testing.T) {
	ctx, trail := follow(t.Context())
	for _, text := range []string{"nonsense", "[" + strings.Repeat(" ", maxPlaceText) + "]", `{"service": "x"}`} {
		visitText(ctx, text)
	}
	if got := trail.all(); len(got) != 0 {
		t.Errorf("nonsense left %v", got)
	}
	for range 2 {
		visitText(ctx, `[{"service": "x"}]`)
	}
	if got := trail.all(); len(got) != 1 || got[0].Service != "x" {
		t.Errorf("twice the same left %v", got)
	}
	for i := range 2 * maxPlaces {
		visit(ctx, place{Service: string(rune('a' + i))})
	}
	if got := len(trail.all()); got != maxPlaces {
		t.Errorf("%d places, want %d", got, maxPlaces)
	}
	visit(context.Background(), place{}) // without a trail: no effect
}

func TestServeReportsAFailure(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	for service, start := range roles {
		if err := start(t.Context(), config{
			place: place{Service: service}, catalogue: "a:1", cart: "a:1", currency: "a:1", shipping: "a:1", orders: "a:1",
		}, listener); err == nil || !strings.HasPrefix(err.Error(), service+": ") {
			t.Errorf("%s on a closed port ended with %v", service, err)
		}
	}
}

// The attempt to connect to a silent server may end before the timeout of the call; the problem is described the same way.
func TestSilentConnection(t *testing.T) {
	defer func(call time.Duration) { callTimeout = call }(callTimeout)
	callTimeout = 50 * time.Millisecond
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	connection, err := dial(listener.Addr().String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	_, err = wire.NewCartClient(connection).Get(t.Context(), &wire.CartRequest{})
	if got := problem(err); got != "no answer in time" {
		t.Errorf("%q for %v", got, err)
	}
}
