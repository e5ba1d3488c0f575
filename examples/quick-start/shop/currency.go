// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"liqo.io/liqo/examples/quick-start/shop/wire"
)

const (
	maxAmounts = 200
	maxCents   = int64(1) << 50 // below it a float64 is exact
)

// currency converts amounts with the rates of a ConfigMap.
type currency struct {
	wire.UnimplementedCurrencyServer
	file string
}

func runCurrency(ctx context.Context, c config, listener net.Listener) error {
	served := &currency{file: c.file("rates.json")}
	ready := func(context.Context) error { _, err := served.rates(); return err }
	return serveGRPC(ctx, c.place, listener, ready, func(s *grpc.Server) { wire.RegisterCurrencyServer(s, served) })
}

// rates maps each currency to its value relative to a common one.
func (c *currency) rates() (map[string]float64, error) {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return nil, err
	}
	var rates map[string]float64
	if err := json.Unmarshal(text, &rates); err != nil {
		return nil, fmt.Errorf("%s: %w", c.file, err)
	}
	for name, rate := range rates {
		if !isCurrency.MatchString(name) || rate <= 0 {
			return nil, fmt.Errorf("%s: rate of %q is %v; want three letters and a number above 0", c.file, name, rate)
		}
	}
	return rates, nil
}

func (c *currency) Convert(_ context.Context, r *wire.ConvertRequest) (*wire.ConvertReply, error) {
	rates, err := c.rates()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	reply := &wire.ConvertReply{Currencies: slices.Sorted(maps.Keys(rates))}
	if len(r.GetAmounts()) > maxAmounts || rates[r.GetTo()] == 0 {
		return nil, status.Errorf(
			codes.InvalidArgument, "want at most %d amounts, and one of %v; got %d, and %q", maxAmounts, reply.Currencies, len(r.GetAmounts()),
			r.GetTo(),
		)
	}
	for _, amount := range r.GetAmounts() {
		rate := rates[amount.GetCurrency()]
		if rate == 0 || amount.GetCents() < 0 || amount.GetCents() > maxCents {
			return nil, status.Errorf(codes.InvalidArgument, "no rate for %d of %q", amount.GetCents(), amount.GetCurrency())
		}
		cents := math.Round(float64(amount.GetCents()) / rate * rates[r.GetTo()])
		reply.Amounts = append(reply.Amounts, &wire.Money{Currency: r.GetTo(), Cents: int64(cents)})
	}
	return reply, nil
}
