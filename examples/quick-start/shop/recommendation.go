// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"hash/fnv"
	"net"
	"net/http"
	"slices"
	"strings"

	"liqo.io/liqo/examples/quick-start/shop/wire"
)

const howMany = 3

// recommendation, by HTTP: GET /recommendations?not=mug,lamp answers with IDs of other products, as JSON.
type recommendation struct {
	catalogue wire.CatalogueClient
}

func runRecommendation(ctx context.Context, c config, listener net.Listener) error {
	connection, err := dial(c.catalogue, callTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	return serveHTTP(ctx, c.place, listener, recommendation{wire.NewCatalogueClient(connection)}.handler())
}

func (s recommendation) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /recommendations", func(w http.ResponseWriter, r *http.Request) {
		list, err := s.catalogue.List(r.Context(), &wire.ListRequest{})
		if err != nil {
			http.Error(w, "catalogue: "+problem(err), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(recommend(list.GetProducts(), strings.Split(r.URL.Query().Get("not"), ",")))
	})
	return mux
}

// recommend chooses products that are not among those. Equal carts get equal recommendations, different carts different ones.
func recommend(products []*wire.Product, not []string) []string {
	chosen := []string{}
	for _, product := range products {
		if !slices.Contains(not, product.GetId()) {
			chosen = append(chosen, product.GetId())
		}
	}
	order := func(id string) uint32 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(strings.Join(not, ",") + "/" + id))
		return h.Sum32()
	}
	slices.SortFunc(chosen, func(a, b string) int { return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a, b)) })
	return chosen[:min(howMany, len(chosen))]
}
