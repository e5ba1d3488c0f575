// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"liqo.io/liqo/examples/quick-start/shop/wire"
)

// services are all services, in the order of the page.
var services = []string{"frontend", "catalogue", "cart", "redis", "currency", "shipping", "recommendation", "orders"}

// others are the services that the frontend calls.
type others struct {
	catalogue      wire.CatalogueClient
	cart           wire.CartClient
	currency       wire.CurrencyClient
	shipping       wire.ShippingClient
	orders         wire.OrdersClient
	ordersHealth   healthv1.HealthClient
	recommendation string // its URL
	web            *http.Client
	connections    []*grpc.ClientConn
}

func connect(c config) (o *others, err error) {
	o = &others{recommendation: "http://" + c.recommendation + "/recommendations", web: &http.Client{Transport: &http.Transport{
		Proxy: nil, MaxIdleConnsPerHost: 4, IdleConnTimeout: 10 * time.Second,
	}}}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	to := func(address string, timeout time.Duration) *grpc.ClientConn {
		connection, failed := dial(address, timeout)
		if failed != nil {
			err = failed
			return nil
		}
		o.connections = append(o.connections, connection)
		return connection
	}
	o.catalogue, o.cart = wire.NewCatalogueClient(to(c.catalogue, callTimeout)), wire.NewCartClient(to(c.cart, callTimeout))
	o.currency, o.shipping = wire.NewCurrencyClient(to(c.currency, callTimeout)), wire.NewShippingClient(to(c.shipping, callTimeout))
	o.orders, o.ordersHealth = wire.NewOrdersClient(to(c.orders, orderTimeout)), healthv1.NewHealthClient(to(c.orders, callTimeout))
	return o, err
}

func (o *others) close() {
	for _, connection := range o.connections {
		_ = connection.Close()
	}
	o.web.CloseIdleConnections()
}

// report is the state of one service: where it runs, if it answered, and what is wrong with it.
type report struct {
	place
	Cluster      string `json:"cluster"`
	Problem      string `json:"problem,omitempty"`
	Milliseconds int64  `json:"milliseconds"`
}

// answers holds the answers of the services for one page. If a service did not answer, its fields are empty and its report has a problem.
type answers struct {
	products    []*wire.Product
	items       []*wire.Item
	quote       *wire.QuoteReply
	converted   *wire.ConvertReply // the prices of the products, then the price of shipping if there is a quote
	recommended []string

	mu      sync.Mutex
	reports map[string]report
}

// gather calls all services that a page needs, those that are independent of each other at the same time. A service that
// is down costs its timeout, not the page.
func (o *others) gather(ctx context.Context, here place, user, currency string) *answers {
	a := &answers{reports: map[string]report{here.Service: {place: here, Cluster: here.cluster()}}}
	var wait sync.WaitGroup
	wait.Go(func() {
		a.ask(ctx, "catalogue", func(ctx context.Context) error {
			reply, err := o.catalogue.List(ctx, &wire.ListRequest{})
			a.products = reply.GetProducts()
			return err
		})
	})
	wait.Go(func() {
		a.ask(ctx, "cart", func(ctx context.Context) error {
			reply, err := o.cart.Get(ctx, &wire.CartRequest{User: user})
			a.items = reply.GetItems()
			return err
		})
	})
	wait.Go(func() {
		// A page needs no order, but shows where orders would be placed.
		a.ask(ctx, "orders", func(ctx context.Context) error {
			_, err := o.ordersHealth.Check(ctx, &healthv1.HealthCheckRequest{})
			return err
		})
	})
	wait.Wait()
	pieces, chosen := int32(0), []string{}
	for _, item := range a.items {
		pieces += item.GetQuantity()
		chosen = append(chosen, item.GetProduct())
	}
	wait.Go(func() {
		a.ask(ctx, "shipping", func(ctx context.Context) (err error) {
			a.quote, err = o.shipping.Quote(ctx, &wire.QuoteRequest{Pieces: max(pieces, 1)})
			return err
		})
	})
	wait.Go(func() {
		a.ask(ctx, "recommendation", func(ctx context.Context) error {
			return getJSON(ctx, o.web, o.recommendation+"?not="+url.QueryEscape(strings.Join(chosen, ",")), &a.recommended)
		})
	})
	wait.Wait()
	a.ask(ctx, "currency", func(ctx context.Context) error {
		request := &wire.ConvertRequest{To: currency}
		for _, product := range a.products {
			request.Amounts = append(request.Amounts, product.GetPrice())
		}
		if a.quote != nil {
			request.Amounts = append(request.Amounts, a.quote.GetCost())
		}
		reply, err := o.currency.Convert(ctx, request)
		if err == nil && len(reply.GetAmounts()) != len(request.GetAmounts()) {
			err = fmt.Errorf("%d amounts answered to %d", len(reply.GetAmounts()), len(request.GetAmounts()))
		}
		if err == nil {
			a.converted = reply
		}
		return err
	})
	return a
}

// ask calls one service, and records the result and the services that it called.
func (a *answers) ask(ctx context.Context, service string, call func(context.Context) error) {
	inner, t := follow(ctx)
	start := time.Now()
	err := call(inner)
	took := time.Since(start).Milliseconds()
	places := t.all()
	visit(ctx, places...)
	a.mu.Lock()
	defer a.mu.Unlock()
	own := report{place: place{Service: service}, Problem: problem(err), Milliseconds: took}
	for _, p := range places {
		switch known, ok := a.reports[p.Service]; {
		case p.Service == service:
			own.place, own.Cluster = p, p.cluster()
		case !ok || known.Problem != "" && known.Node == "":
			a.reports[p.Service] = report{place: p, Cluster: p.cluster()}
		}
	}
	a.reports[service] = own
}

// all returns a report of each service, including those that were not reached.
func (a *answers) all() []report {
	list := make([]report, 0, len(services))
	for _, service := range services {
		one, ok := a.reports[service]
		if !ok {
			one = report{place: place{Service: service}, Problem: "not known: the services that call it did not answer"}
		}
		list = append(list, one)
	}
	return list
}

// closedByUs is part of gRPC's error if the server accepted the connection but sent nothing before we closed it. A call
// after that, or during the next attempt, gets this error instead of its own timeout.
var closedByUs = net.ErrClosed.Error()

// problem describes an error for the user; it is empty if err is nil.
func problem(err error) string {
	if address := (*url.Error)(nil); errors.As(err, &address) {
		err = address.Err // without the address, which has the cart in it
	}
	is := status.Convert(err)
	switch {
	case err == nil:
		return ""
	case is.Code() == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded),
		is.Code() == codes.Unavailable && strings.Contains(is.Message(), closedByUs):
		return "no answer in time"
	case is.Code() == codes.Unavailable:
		// Drop the text that gRPC adds to the error of the connection.
		text := strings.Replace(is.Message(), `connection error: desc = "transport: Error while dialing: `, "", 1)
		return "not reachable: " + strings.TrimSuffix(text, `"`)
	default:
		return is.Message()
	}
}

// needs returns the error of a service that failed because another service did.
func needs(service string, err error) error {
	code := status.Code(err)
	if code == codes.Unavailable || code == codes.DeadlineExceeded {
		code = codes.Aborted // the caller must see that not this service, but another one is unreachable
	}
	return status.Error(code, service+": "+problem(err))
}
