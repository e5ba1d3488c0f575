// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"liqo.io/liqo/examples/quick-start/shop/redis"
	"liqo.io/liqo/examples/quick-start/shop/wire"
)

const (
	maxQuantity = 99
	keepSeconds = "86400" // carts and orders are forgotten after a day
)

// cart keeps the products that a user has chosen, in Redis.
type cart struct {
	wire.UnimplementedCartServer
	store store
}

// store is the part of Redis that cart and orders use.
type store interface {
	Do(ctx context.Context, commands ...[]string) ([]any, error)
}

func runCart(ctx context.Context, c config, listener net.Listener) error {
	served := &cart{store: signingStore{&redis.Client{Address: c.redis, AuthFile: c.redisAuth}}}
	// The cart cannot work without Redis.
	ready := func(ctx context.Context) error { _, err := served.store.Do(ctx, []string{"PING"}); return err }
	return serveGRPC(ctx, c.place, listener, ready, func(s *grpc.Server) { wire.RegisterCartServer(s, served) })
}

func (c *cart) Add(ctx context.Context, r *wire.AddRequest) (*wire.CartReply, error) {
	item := r.GetItem()
	if !isName.MatchString(r.GetUser()) || !isName.MatchString(item.GetProduct()) || item.GetQuantity() < 1 || item.GetQuantity() > maxQuantity {
		return nil, status.Errorf(codes.InvalidArgument, "want a user, a product and a quantity from 1 to %d", maxQuantity)
	}
	key := "cart:" + r.GetUser()
	answers, err := c.store.Do(ctx,
		[]string{"HINCRBY", key, item.GetProduct(), strconv.Itoa(int(item.GetQuantity()))}, []string{"EXPIRE", key, keepSeconds}, []string{"HGETALL", key})
	return cartReply(answers, err)
}

func (c *cart) Get(ctx context.Context, r *wire.CartRequest) (*wire.CartReply, error) {
	if !isName.MatchString(r.GetUser()) {
		return nil, status.Error(codes.InvalidArgument, "want a user")
	}
	return cartReply(c.store.Do(ctx, []string{"HGETALL", "cart:" + r.GetUser()}))
}

func (c *cart) Clear(ctx context.Context, r *wire.CartRequest) (*wire.CartReply, error) {
	if !isName.MatchString(r.GetUser()) {
		return nil, status.Error(codes.InvalidArgument, "want a user")
	}
	if _, err := c.store.Do(ctx, []string{"DEL", "cart:" + r.GetUser()}); err != nil {
		return nil, storeError(err)
	}
	return &wire.CartReply{}, nil
}

// cartReply reads the last answer, which is to HGETALL: names and values in turn.
func cartReply(answers []any, err error) (*wire.CartReply, error) {
	if err != nil {
		return nil, storeError(err)
	}
	list, _ := answers[len(answers)-1].([]any)
	reply := &wire.CartReply{}
	for pair := range slices.Chunk(list, 2) {
		name, _ := pair[0].(string)
		text, _ := pair[len(pair)-1].(string)
		quantity, err := strconv.ParseInt(text, 10, 32)
		if err != nil || !isName.MatchString(name) {
			return nil, status.Error(codes.DataLoss, "redis holds a cart that is none of ours")
		}
		reply.Items = append(reply.Items, &wire.Item{Product: name, Quantity: int32(min(quantity, maxQuantity))})
	}
	slices.SortFunc(reply.Items, func(a, b *wire.Item) int { return strings.Compare(a.GetProduct(), b.GetProduct()) })
	return reply, nil
}

// storeError distinguishes an unreachable Redis from one that refuses a command.
func storeError(err error) error {
	if refused := redis.Error(""); errors.As(err, &refused) {
		return status.Error(codes.Internal, err.Error())
	}
	return status.Error(codes.Unavailable, err.Error())
}

// signingStore also reads the place of Redis. Redis has no setting for it, so the manifest writes it to an unused one:
// the name for a system log.
type signingStore struct{ store }

func (s signingStore) Do(ctx context.Context, commands ...[]string) ([]any, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	answers, err := s.store.Do(ctx, append(slices.Clone(commands), []string{"CONFIG", "GET", "syslog-ident"})...)
	if err != nil {
		return nil, err
	}
	last := len(answers) - 1
	if pair, _ := answers[last].([]any); len(pair) == 2 {
		text, _ := pair[1].(string)
		if parts := strings.Split(text, "/"); len(parts) == 3 {
			visit(ctx, place{Service: "redis", Node: parts[0], Pod: parts[1], Namespace: parts[2]})
		}
	}
	return answers[:last], nil
}
