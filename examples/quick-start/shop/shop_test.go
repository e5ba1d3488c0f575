// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestShop(t *testing.T) {
	m := open(t)
	b := m.browser()
	b.get("/").has("Espresso pot", "29.90 EUR", "Others also bought", "Empty.", "frontend-pod", "milan-worker").hasNot("Not all services", "class=\"bad\"")
	if missing := b.missing(); len(missing) > 0 {
		t.Fatalf("missing: %v", missing)
	}
	b.post("/cart", "product=espresso-pot", "quantity=2").has("2 &times;", "Goods: <span class=\"price\">59.80 EUR")
	b.post("/cart", "product=bell", "quantity=1").has("71.30 EUR", "Shipping 3.90 EUR")
	b.post("/currency", "currency=CHF").has("67.03 CHF", "Shipping 3.67 CHF")

	number := b.get("/").orderNumber()
	const placed = ": 2 products for 67.03 CHF, shipping 3.67 CHF, in all 70.70 CHF"
	b.post("/orders", "number="+number).has("Order "+number+placed, "Empty.")
	b.post("/orders", "number="+number).has("Order " + number + placed) // the same order, not another one
	b.post("/orders", "number=another").has("Nothing was ordered: the cart is empty").code(http.StatusConflict)

	other := m.browser()
	other.post("/cart", "product=bell", "quantity=1").has("1 &times;")
	b.get("/").has("Empty.") // two browsers have two carts
	other.post("/cart/clear").has("Empty.")
	other.post("/cart", "product=bell", "quantity=500").code(http.StatusBadRequest)
	other.post("/cart", "product=../bell", "quantity=1").code(http.StatusBadRequest)
	other.post("/cart", "product=bell", "quantity=many").code(http.StatusBadRequest)
	other.post("/currency", "currency=XXX").has("29.90 EUR", "Not all services answer: currency.", "want at most 200 amounts, and one of [CHF EUR]")
}

// TestPlaces: each service reports its place, also those that the frontend does not call directly.
func TestPlaces(t *testing.T) {
	m := open(t)
	response := m.browser().get("/")
	for _, service := range services {
		response.has(service+"-pod", "remote-of-"+service)
	}
	var listed []place
	if err := json.Unmarshal([]byte(response.header.Get(placesHeader)), &listed); err != nil {
		t.Fatal(err)
	}
	for _, service := range services {
		if !slices.Contains(listed, placeOf(service)) {
			t.Errorf("the header of the page does not have %v: %v", placeOf(service), listed)
		}
	}
}

// TestWithoutOne: if a service is down, the page names it, and the others work.
func TestWithoutOne(t *testing.T) {
	for _, test := range []struct {
		down    string
		missing []string
		page    string // what the page shows instead
		order   string // the answer to an order
		code    int
	}{
		{"catalogue", []string{"catalogue", "recommendation"}, "The catalogue does not answer", "Nothing was ordered: catalogue: not reachable: dial tcp", 503},
		{"cart", []string{"cart", "redis"}, "Espresso pot", "Nothing was ordered: cart: not reachable: dial tcp", 503},
		{"redis", []string{"cart", "redis"}, "Espresso pot", "Nothing was ordered: not reachable: ask redis at", 503},
		{"currency", []string{"currency"}, "29.90 EUR", "Nothing was ordered: currency: not reachable: dial tcp", 503},
		{"shipping", []string{"shipping"}, "The cost of shipping is not known now", "Nothing was ordered: shipping: not reachable: dial tcp", 503},
		{"recommendation", []string{"recommendation"}, "Espresso pot", "1 products for 11.50 EUR", 200},
		{"orders", []string{"orders"}, "Espresso pot", "Nothing was ordered: not reachable: dial tcp", 503},
	} {
		t.Run(test.down, func(t *testing.T) {
			t.Parallel()
			m := open(t)
			b := m.browser()
			b.post("/cart", "product=bell", "quantity=1").has("1 &times;")
			m.stop(test.down)
			if missing := b.missing(); !slices.Equal(missing, test.missing) {
				t.Errorf("missing %v, want %v", missing, test.missing)
			}
			b.get("/").code(http.StatusOK).has("Not all services answer: "+strings.Join(test.missing, ", "), test.page)
			b.post("/orders", "number=mine").code(test.code).has(test.order)
			m.start(test.down)
			m.eventually("all services answer again", func() bool { return len(b.missing()) == 0 })
		})
	}
}

// TestSilence: a service that accepts connections and sends nothing, as behind a broken tunnel, costs its timeout, not the page.
func TestSilence(t *testing.T) {
	defer func(call, store time.Duration) { callTimeout, storeTimeout = call, store }(callTimeout, storeTimeout)
	callTimeout, storeTimeout = 300*time.Millisecond, 100*time.Millisecond
	for _, silent := range []string{"shipping", "redis", "recommendation"} {
		nested := nestedTimeout
		nestedTimeout = callTimeout
		m := open(t)
		m.stop(silent)
		m.silence(silent)
		b := m.browser()
		b.get("/").code(http.StatusOK).has("Not all services answer")
		if silent == "shipping" {
			// On a busy machine, another service may miss the short timeout first.
			m.eventually("the answer to an order names shipping", func() bool {
				b.post("/cart", "product=bell", "quantity=1")
				return strings.Contains(b.post("/orders", "number=mine").body, "Nothing was ordered: shipping: no answer in time")
			})
		}
		if missing := b.missing(); !slices.Contains(missing, silent) {
			t.Errorf("%s is silent, missing are %v", silent, missing)
		}
		nestedTimeout = nested
	}
}

// TestShutdownFinishesRequests: a service finishes its open requests after SIGTERM.
func TestShutdownFinishesRequests(t *testing.T) {
	received, release := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(received)
		<-release
		_, _ = io.WriteString(w, "done")
	})
	s := serveInTest(t, func(s *service) error { return serveHTTP(s.ctx, placeOf("x"), s.listener, handler) })
	answered := make(chan string, 1)
	go func() {
		response, err := http.Get("http://" + s.address)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		answered <- string(text)
	}()
	<-received
	s.cancel()
	close(release)
	if got := <-answered; got != "done" {
		t.Errorf("the open request got %q", got)
	}
	if err := <-s.ended; err != nil {
		t.Errorf("the service ended with %v", err)
	}
}

func TestHello(t *testing.T) {
	m := open(t, "hello")
	response := m.browserOf("hello").get("/")
	for _, want := range []string{`(?m)^Server address: 127[.0-9]+:\d+$`, `(?m)^Server name: hello-pod$`, `(?m)^Node: `} {
		if !regexp.MustCompile(want).MatchString(response.body) {
			t.Errorf("the page has no line %s:\n%s", want, response.body)
		}
	}
}

func TestClusterOfNode(t *testing.T) {
	for node, want := range map[string]string{
		"rome-worker": "rome", "rome-worker2": "rome", "milan-control-plane": "milan", "liqo-milan": "milan", "ip-10-0-0-1": "ip-10-0-0-1",
		"my-edge-worker": "my-edge", "": "",
	} {
		if got := (place{Node: node}).cluster(); got != want {
			t.Errorf("%s: cluster %q, want %q", node, got, want)
		}
	}
}

func TestRefusesToStart(t *testing.T) {
	none := func(string) string { return "" }
	for name, test := range map[string]struct {
		args []string
		env  func(string) string
		want string
	}{
		"no service":      {nil, none, "want one argument"},
		"unknown service": {[]string{"bank"}, none, `no service "bank"; there are: cart, catalogue`},
		"bad address":     {[]string{"cart"}, func(name string) string { return map[string]string{"SHOP_REDIS": "redis"}[name] }, `address "redis"`},
		"port in use":     {[]string{"hello"}, func(name string) string { return map[string]string{"SHOP_LISTEN": "256.0.0.1:1"}[name] }, "256.0.0.1"},
	} {
		if err := run(t.Context(), test.args, test.env); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
}

// missing asks the table of services.
func (b *browser) missing() []string {
	b.t.Helper()
	var table struct {
		Missing  []string
		Services []report
	}
	if err := json.Unmarshal([]byte(b.get("/api/services").body), &table); err != nil {
		b.t.Fatal(err)
	}
	if len(table.Services) != len(services) {
		b.t.Errorf("%d services in the table, want %d", len(table.Services), len(services))
	}
	return table.Missing
}

var orderForm = regexp.MustCompile(`name="number" value="([^"]+)"`)

func (r answer) orderNumber() string {
	r.t.Helper()
	match := orderForm.FindStringSubmatch(r.body)
	if match == nil {
		r.t.Fatalf("no form for an order:\n%s", r.body)
	}
	return match[1]
}

func (b *browser) post(path string, fields ...string) answer {
	b.t.Helper()
	values, err := url.ParseQuery(strings.Join(fields, "&"))
	if err != nil {
		b.t.Fatal(err)
	}
	return b.read(b.client.PostForm(b.at+path, values))
}
