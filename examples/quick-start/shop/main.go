// SPDX-License-Identifier: Apache-2.0

// Command shop is every service of the demo application of the Quick Start, a role each: `shop frontend`, `shop cart`,
// and so on. Each response carries the place of the service, so that the page of the frontend shows which service runs in
// which cluster. If a service is down, the page names it, and the others continue.
//
// It must not know Kubernetes, nor Liqo: an application that runs across clusters is like any other. shop_test.go tests all
// roles together, and without each of them; manifests_test.go tests that the manifests start this program.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// config is the configuration of a process, from its environment.
type config struct {
	listen string
	data   string // folder of products.json and rates.json
	place  place
	// The addresses of the other services.
	catalogue, cart, currency, shipping, recommendation, orders, redis string
	redisAuth                                                          string
}

// roles start a service. They return when ctx has ended and open requests are answered.
var roles = map[string]func(context.Context, config, net.Listener) error{
	"hello":          runHello,
	"frontend":       runFrontend,
	"catalogue":      runCatalogue,
	"cart":           runCart,
	"currency":       runCurrency,
	"shipping":       runShipping,
	"recommendation": runRecommendation,
	"orders":         runOrders,
}

func main() {
	log.SetFlags(log.LstdFlags | log.LUTC)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string, env func(string) string) error {
	names := strings.Join(slices.Sorted(maps.Keys(roles)), ", ")
	if len(args) != 1 {
		return fmt.Errorf("want one argument, the service to be; one of: %s", names)
	}
	start, ok := roles[args[0]]
	if !ok {
		return fmt.Errorf("there is no service %q; there are: %s", args[0], names)
	}
	c, err := configOf(args[0], env)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return err
	}
	log.Printf("%s listens on %s", args[0], listener.Addr())
	return start(ctx, c, listener)
}

// configOf reads the environment. Addresses have defaults, which are the names of the Services in the manifests.
func configOf(role string, env func(string) string) (config, error) {
	or := func(name, otherwise string) string {
		if value := env(name); value != "" {
			return value
		}
		return otherwise
	}
	host, err := os.Hostname()
	if err != nil {
		return config{}, fmt.Errorf("name of this machine: %w", err)
	}
	c := config{
		listen: or("SHOP_LISTEN", ":8080"), data: or("SHOP_DATA", "/etc/shop"),
		place:     place{Service: role, Node: or("NODE_NAME", host), Pod: or("POD_NAME", host), Namespace: env("POD_NAMESPACE")},
		catalogue: or("SHOP_CATALOGUE", "catalogue:8080"), cart: or("SHOP_CART", "cart:8080"),
		currency: or("SHOP_CURRENCY", "currency:8080"), shipping: or("SHOP_SHIPPING", "shipping:8080"),
		recommendation: or("SHOP_RECOMMENDATION", "recommendation:8080"), orders: or("SHOP_ORDERS", "orders:8080"),
		redis: or("SHOP_REDIS", "redis:6379"), redisAuth: env("SHOP_REDIS_AUTH"),
	}
	var wrong []error
	for _, address := range []string{c.listen, c.catalogue, c.cart, c.currency, c.shipping, c.recommendation, c.orders, c.redis} {
		if _, _, err := net.SplitHostPort(address); err != nil {
			wrong = append(wrong, fmt.Errorf("address %q: %w; write HOST:PORT", address, err))
		}
	}
	return c, errors.Join(wrong...)
}

// file is the path of a file of the shop's data.
func (c config) file(name string) string { return filepath.Join(c.data, name) }
