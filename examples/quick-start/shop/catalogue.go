// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"regexp"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"liqo.io/liqo/examples/quick-start/shop/wire"
)

// The catalogue lists the products. They come from a ConfigMap, and are read again when it changes.
type catalogue struct {
	wire.UnimplementedCatalogueServer
	file string
}

func runCatalogue(ctx context.Context, c config, listener net.Listener) error {
	served := &catalogue{file: c.file("products.json")}
	ready := func(context.Context) error { _, err := served.products(); return err }
	return serveGRPC(ctx, c.place, listener, ready, func(s *grpc.Server) { wire.RegisterCatalogueServer(s, served) })
}

func (c *catalogue) List(context.Context, *wire.ListRequest) (*wire.ListReply, error) {
	products, err := c.products()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &wire.ListReply{Products: products}, nil
}

var (
	isName     = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
	isCurrency = regexp.MustCompile(`^[A-Z]{3}$`)
)

func (c *catalogue) products() ([]*wire.Product, error) {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return nil, err
	}
	var rows []struct {
		ID, Name, Description, Currency string
		Cents                           int64
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		return nil, fmt.Errorf("%s: %w", c.file, err)
	}
	products := make([]*wire.Product, 0, len(rows))
	for i, row := range rows {
		if !isName.MatchString(row.ID) || row.Name == "" || !isCurrency.MatchString(row.Currency) || row.Cents <= 0 {
			return nil, fmt.Errorf("%s: product %d (%q) needs an id of a-z, 0-9 and -, a name, a currency of three letters and cents above 0", c.file, i+1, row.ID)
		}
		products = append(products, &wire.Product{
			Id: row.ID, Name: row.Name, Description: row.Description, Price: &wire.Money{Currency: row.Currency, Cents: row.Cents},
		})
	}
	return products, nil
}
