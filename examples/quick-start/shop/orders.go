// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"liqo.io/liqo/examples/quick-start/shop/redis"
	"liqo.io/liqo/examples/quick-start/shop/wire"
)

// orders turns a cart into an order, once for each number. It calls most of the other services.
type orders struct {
	wire.UnimplementedOrdersServer
	catalogue wire.CatalogueClient
	cart      wire.CartClient
	currency  wire.CurrencyClient
	shipping  wire.ShippingClient
	store     store
}

func runOrders(ctx context.Context, c config, listener net.Listener) error {
	var connections []*grpc.ClientConn
	defer func() {
		for _, connection := range connections {
			_ = connection.Close()
		}
	}()
	for _, address := range []string{c.catalogue, c.cart, c.currency, c.shipping} {
		connection, err := dial(address, callTimeout)
		if err != nil {
			return err
		}
		connections = append(connections, connection)
	}
	served := &orders{
		catalogue: wire.NewCatalogueClient(connections[0]), cart: wire.NewCartClient(connections[1]),
		currency: wire.NewCurrencyClient(connections[2]), shipping: wire.NewShippingClient(connections[3]),
		store: signingStore{&redis.Client{Address: c.redis, AuthFile: c.redisAuth}},
	}
	// Ready even if another service is down: the caller then learns at once which one.
	return serveGRPC(ctx, c.place, listener, nil, func(s *grpc.Server) { wire.RegisterOrdersServer(s, served) })
}

func (o *orders) Place(ctx context.Context, r *wire.PlaceRequest) (*wire.Order, error) {
	if !isName.MatchString(r.GetUser()) || !isName.MatchString(r.GetNumber()) || !isCurrency.MatchString(r.GetCurrency()) {
		return nil, status.Error(codes.InvalidArgument, "want a user, a number and a currency")
	}
	key := "order:" + r.GetUser() + ":" + r.GetNumber()
	if placed, err := o.placed(ctx, key); placed != nil || err != nil {
		return placed, err
	}
	order, err := o.price(ctx, r)
	if err != nil {
		// A concurrent request for the same order empties the cart.
		if placed, _ := o.placed(ctx, key); placed != nil {
			return placed, nil
		}
		return nil, err
	}
	text, err := protojson.Marshal(order)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	// NX GET: of two concurrent requests, one places the order and the other gets it.
	answers, err := o.store.Do(ctx, []string{"SET", key, string(text), "NX", "GET", "EX", keepSeconds})
	if err != nil {
		return nil, storeError(err)
	}
	if placed, ok := answers[0].(string); ok {
		return orderOf(placed)
	}
	if _, err := o.cart.Clear(ctx, &wire.CartRequest{User: r.GetUser()}); err != nil {
		order.Note = "The order is placed, but the cart could not be emptied: " + problem(err)
	}
	return order, nil
}

// placed returns the order that has been placed under this key, or nil.
func (o *orders) placed(ctx context.Context, key string) (*wire.Order, error) {
	answers, err := o.store.Do(ctx, []string{"GET", key})
	if err != nil {
		return nil, storeError(err)
	}
	if text, ok := answers[0].(string); ok {
		return orderOf(text)
	}
	return nil, nil
}

func orderOf(text string) (*wire.Order, error) {
	order := &wire.Order{}
	if err := protojson.Unmarshal([]byte(text), order); err != nil {
		return nil, status.Errorf(codes.DataLoss, "stored order: %v", err)
	}
	return order, nil
}

// price returns the price of the cart.
func (o *orders) price(ctx context.Context, r *wire.PlaceRequest) (*wire.Order, error) {
	items, err := o.cart.Get(ctx, &wire.CartRequest{User: r.GetUser()})
	if err != nil {
		return nil, needs("cart", err)
	}
	if len(items.GetItems()) == 0 {
		return nil, status.Error(codes.FailedPrecondition, "the cart is empty")
	}
	list, err := o.catalogue.List(ctx, &wire.ListRequest{})
	if err != nil {
		return nil, needs("catalogue", err)
	}
	prices := map[string]*wire.Money{}
	for _, product := range list.GetProducts() {
		prices[product.GetId()] = product.GetPrice()
	}
	order := &wire.Order{Number: r.GetNumber(), Items: items.GetItems()}
	var amounts []*wire.Money
	var pieces int32
	for _, item := range order.GetItems() {
		price, ok := prices[item.GetProduct()]
		if !ok {
			return nil, status.Errorf(codes.FailedPrecondition, "%q is not sold any more", item.GetProduct())
		}
		amounts = append(amounts, price)
		pieces += item.GetQuantity()
	}
	quote, err := o.shipping.Quote(ctx, &wire.QuoteRequest{Pieces: pieces})
	if err != nil {
		return nil, needs("shipping", err)
	}
	converted, err := o.currency.Convert(ctx, &wire.ConvertRequest{Amounts: append(amounts, quote.GetCost()), To: r.GetCurrency()})
	if err != nil {
		return nil, needs("currency", err)
	}
	if got, want := len(converted.GetAmounts()), len(amounts)+1; got != want {
		return nil, status.Errorf(codes.Internal, "currency answered with %d amounts to %d", got, want)
	}
	order.Days, order.Shipping = quote.GetDays(), converted.GetAmounts()[len(amounts)]
	// One piece is converted, then counted: the sum of the prices that the page shows.
	order.Goods = &wire.Money{Currency: r.GetCurrency()}
	for i, item := range order.GetItems() {
		order.Goods.Cents += converted.GetAmounts()[i].GetCents() * int64(item.GetQuantity())
	}
	order.Total = &wire.Money{Currency: r.GetCurrency(), Cents: order.GetGoods().GetCents() + order.GetShipping().GetCents()}
	return order, nil
}
