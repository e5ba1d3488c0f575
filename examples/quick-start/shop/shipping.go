// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"liqo.io/liqo/examples/quick-start/shop/wire"
)

const maxPieces = 10_000

// shipping returns the cost of sending a number of pieces. It calls no other service.
type shipping struct {
	wire.UnimplementedShippingServer
}

func runShipping(ctx context.Context, c config, listener net.Listener) error {
	return serveGRPC(ctx, c.place, listener, nil, func(s *grpc.Server) { wire.RegisterShippingServer(s, shipping{}) })
}

func (shipping) Quote(_ context.Context, r *wire.QuoteRequest) (*wire.QuoteReply, error) {
	pieces := int64(r.GetPieces())
	if pieces < 1 || pieces > maxPieces {
		return nil, status.Errorf(codes.InvalidArgument, "%d pieces; want 1 to %d", pieces, maxPieces)
	}
	boxes := (pieces + 4) / 5
	return &wire.QuoteReply{Cost: &wire.Money{Currency: "EUR", Cents: 390 + 150*(boxes-1)}, Days: int32(min(2+boxes/4, 7))}, nil
}
