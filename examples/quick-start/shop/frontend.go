// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"liqo.io/liqo/examples/quick-start/shop/wire"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

const (
	userCookie      = "user"
	currencyCookie  = "currency"
	defaultCurrency = "EUR"
)

// frontend serves the web page. It works if other services are down, and shows which ones are.
type frontend struct {
	here   place
	others *others
}

func runFrontend(ctx context.Context, c config, listener net.Listener) error {
	others, err := connect(c)
	if err != nil {
		return err
	}
	defer others.close()
	return serveHTTP(ctx, c.place, listener, frontend{here: c.place, others: others}.handler())
}

func (f frontend) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { f.show(w, r, http.StatusOK, shown{}) })
	mux.HandleFunc("GET /api/services", f.services)
	mux.HandleFunc("POST /currency", func(w http.ResponseWriter, r *http.Request) {
		if chosen := r.FormValue("currency"); isCurrency.MatchString(chosen) {
			setCookie(w, currencyCookie, chosen)
		}
		http.Redirect(w, r, "/", http.StatusSeeOther)
	})
	mux.HandleFunc("POST /cart", f.add)
	mux.HandleFunc("POST /cart/clear", func(w http.ResponseWriter, r *http.Request) {
		_, err := f.others.cart.Clear(r.Context(), &wire.CartRequest{User: user(w, r)})
		f.after(w, r, "The cart could not be emptied", err)
	})
	mux.HandleFunc("POST /orders", f.order)
	return mux
}

func (f frontend) add(w http.ResponseWriter, r *http.Request) {
	quantity, err := strconv.ParseInt(r.FormValue("quantity"), 10, 32)
	if err != nil {
		http.Error(w, "quantity is no number", http.StatusBadRequest)
		return
	}
	_, err = f.others.cart.Add(r.Context(), &wire.AddRequest{User: user(w, r), Item: &wire.Item{Product: r.FormValue("product"), Quantity: int32(quantity)}})
	f.after(w, r, "This could not be put into the cart", err)
}

// after shows the page again, or the page with an error.
func (f frontend) after(w http.ResponseWriter, r *http.Request, failed string, err error) {
	if err == nil {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	f.show(w, r, codeOf(err), shown{Message: failed + ": " + problem(err) + "."})
}

func codeOf(err error) int {
	switch status.Code(err) {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.FailedPrecondition:
		return http.StatusConflict
	default:
		return http.StatusServiceUnavailable
	}
}

func (f frontend) order(w http.ResponseWriter, r *http.Request) {
	order, err := f.others.orders.Place(r.Context(), &wire.PlaceRequest{User: user(w, r), Number: r.FormValue("number"), Currency: currencyOf(r)})
	if err != nil {
		f.after(w, r, "Nothing was ordered", err)
		return
	}
	text := fmt.Sprintf("Order %s: %d products for %s, shipping %s, in all %s. It arrives in %d days. %s", order.GetNumber(), len(order.GetItems()),
		format(order.GetGoods()), format(order.GetShipping()), format(order.GetTotal()), order.GetDays(), order.GetNote())
	f.show(w, r, http.StatusOK, shown{Message: strings.TrimSpace(text), Good: true})
}

// services serves the table of the page as JSON.
func (f frontend) services(w http.ResponseWriter, r *http.Request) {
	reports := f.others.gather(r.Context(), f.here, user(w, r), currencyOf(r)).all()
	missing := []string{}
	for _, one := range reports {
		if one.Problem != "" {
			missing = append(missing, one.Service)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"services": reports, "missing": missing})
}

// shown is the input of the template.
type shown struct {
	Message     string
	Good        bool
	Here        string // the cluster of the frontend
	Currency    string
	Currencies  []string
	Products    []ware
	Recommended []ware
	Lines       []line
	Total       string
	Shipping    string
	Days        int32
	Number      string
	Services    []report
	Clusters    []cluster
	Missing     []string
}

type ware struct {
	ID, Name, Description, Price, Letter string
	Hue                                  int
}

type line struct {
	Name     string
	Quantity int32
}

type cluster struct {
	Name     string
	Services []string
}

func (f frontend) show(w http.ResponseWriter, r *http.Request, code int, v shown) {
	v.Here, v.Currency, v.Number = f.here.cluster(), currencyOf(r), number()
	v.fill(f.others.gather(r.Context(), f.here, user(w, r), v.Currency))
	var body bytes.Buffer
	if err := page.Execute(&body, v); err != nil {
		log.Printf("page: %v", err)
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'")
	w.WriteHeader(code)
	_, _ = io.Copy(w, &body)
}

// fill turns the answers into the input of the template. Without rates, it keeps the currency of the catalogue.
func (v *shown) fill(a *answers) {
	v.Currencies = a.converted.GetCurrencies()
	names := map[string]ware{}
	prices := a.converted.GetAmounts()
	for i, product := range a.products {
		price := product.GetPrice()
		if i < len(prices) {
			price = prices[i]
		}
		one := ware{product.GetId(), product.GetName(), product.GetDescription(), format(price), string([]rune(product.GetName())[:1]), i * 47 % 360}
		names[one.ID], v.Products = one, append(v.Products, one)
	}
	for _, id := range a.recommended {
		if one, ok := names[id]; ok {
			v.Recommended = append(v.Recommended, one)
		}
	}
	goods := &wire.Money{}
	for _, item := range a.items {
		name := item.GetProduct()
		if one, ok := names[name]; ok {
			name = one.Name
		}
		v.Lines = append(v.Lines, line{name, item.GetQuantity()})
		i := slices.IndexFunc(a.products, func(p *wire.Product) bool { return p.GetId() == item.GetProduct() })
		if i >= 0 && i < len(prices) {
			goods.Currency, goods.Cents = prices[i].GetCurrency(), goods.GetCents()+int64(item.GetQuantity())*prices[i].GetCents()
		}
	}
	if goods.GetCurrency() != "" {
		v.Total = format(goods)
	}
	if a.quote != nil {
		v.Days, v.Shipping = a.quote.GetDays(), format(a.quote.GetCost())
		if len(prices) > 0 {
			v.Shipping = format(prices[len(prices)-1])
		}
	}
	v.Services = a.all()
	for _, one := range v.Services {
		if one.Problem != "" {
			v.Missing = append(v.Missing, one.Service)
		}
		if one.Cluster == "" {
			continue
		}
		i := slices.IndexFunc(v.Clusters, func(c cluster) bool { return c.Name == one.Cluster })
		if i < 0 {
			i, v.Clusters = len(v.Clusters), append(v.Clusters, cluster{Name: one.Cluster})
		}
		v.Clusters[i].Services = append(v.Clusters[i].Services, one.Service)
	}
}

func format(m *wire.Money) string {
	return fmt.Sprintf("%d.%02d %s", m.GetCents()/100, m.GetCents()%100, m.GetCurrency())
}

// user returns the name in the browser's cookie; a new browser gets a random name.
func user(w http.ResponseWriter, r *http.Request) string {
	if cookie, err := r.Cookie(userCookie); err == nil && isName.MatchString(cookie.Value) {
		return cookie.Value
	}
	name := number()
	setCookie(w, userCookie, name)
	r.AddCookie(&http.Cookie{Name: userCookie, Value: name}) // so that a second call returns the same name
	return name
}

func currencyOf(r *http.Request) string {
	if cookie, err := r.Cookie(currencyCookie); err == nil && isCurrency.MatchString(cookie.Value) {
		return cookie.Value
	}
	return defaultCurrency
}

func setCookie(w http.ResponseWriter, name, value string) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: 86400, HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

// number returns a random number that cannot be guessed.
func number() string { return strings.ToLower(rand.Text()) }
