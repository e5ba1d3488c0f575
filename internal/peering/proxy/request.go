// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxRequest bounds the request of a client, in bytes. An honest one has less than 400.
const maxRequest = 4 << 10

// refusal is the answer to a client that gets no connection.
type refusal struct {
	code int
	text string
}

// What clients are refused for. The texts name no host, and repeat nothing of the request.
var (
	errMalformed = &refusal{http.StatusBadRequest, "this is not a complete HTTP request, or it has what a CONNECT request has not"}
	errTooLong   = &refusal{http.StatusRequestHeaderFieldsTooLarge, "the request is too long"}
	errMethod    = &refusal{http.StatusMethodNotAllowed, "this proxy answers CONNECT only"}
	errPass      = &refusal{http.StatusProxyAuthRequired, "the URL of this proxy must have the ID and the pass of the peer; run `liqoctl peer in-band` again"}
	errElsewhere = &refusal{http.StatusForbidden, "this proxy leads to the API server and the authentication service of its cluster only"}
	errAuthOnly  = &refusal{http.StatusForbidden, "the pass is for the authentication service only"}
	errTooMany   = &refusal{http.StatusTooManyRequests, "this cluster has too many connections through the proxy"}
	errTooOften  = &refusal{http.StatusTooManyRequests, "this cluster opens connections through the proxy too often; try again in some seconds"}
	errFull      = &refusal{http.StatusServiceUnavailable, "the proxy has too many connections"}
	errUpstream  = &refusal{http.StatusBadGateway, "the destination does not answer"}
)

// answer is the response that the client gets.
func (r *refusal) answer() string {
	more := ""
	switch r.code {
	case http.StatusProxyAuthRequired:
		more = "Proxy-Authenticate: Basic realm=\"liqo\"\r\n"
	case http.StatusMethodNotAllowed:
		more = "Allow: CONNECT\r\n"
	}
	return "HTTP/1.1 " + strconv.Itoa(r.code) + " " + http.StatusText(r.code) + "\r\n" + more +
		"Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: " +
		strconv.Itoa(len(r.text)) + "\r\n\r\n" + r.text
}

// connect is a request that may have a connection.
type connect struct {
	// peer is the cluster ID of the client, which its pass proves.
	peer string
	// to is the key of the destination.
	to string
	// early is what the client has sent after the request.
	early []byte
}

// readConnect reads the one request of a connection.
func readConnect(from io.Reader, key []byte, known func(to string) bool) (connect, *refusal) {
	limited := &io.LimitedReader{R: from, N: maxRequest}
	reader := bufio.NewReaderSize(limited, maxRequest)
	request, err := http.ReadRequest(reader)
	switch {
	case err != nil && limited.N == 0:
		return connect{}, errTooLong
	case err != nil:
		return connect{}, errMalformed
	case request.Method != http.MethodConnect:
		return connect{}, errMethod
	case malformed(request):
		return connect{}, errMalformed
	}
	peer, authOnly, ok := passOf(request.Header, key)
	switch {
	case !ok:
		return connect{}, errPass
	case !known(request.RequestURI):
		return connect{}, errElsewhere
	case authOnly && request.RequestURI != Auth:
		return connect{}, errAuthOnly
	}
	early, err := reader.Peek(reader.Buffered())
	if err != nil {
		return connect{}, errMalformed
	}
	return connect{peer: peer, to: request.RequestURI, early: early}, nil
}

// malformed reports whether a CONNECT request has what none has: a body, an upgrade, or another version of HTTP. Its Host header does not count.
func malformed(request *http.Request) bool {
	return request.ProtoMajor != 1 || request.ContentLength != 0 || len(request.TransferEncoding) > 0 || request.Header["Transfer-Encoding"] != nil ||
		request.Header["Content-Length"] != nil || request.Header["Upgrade"] != nil
}

// passOf returns the cluster ID of a client if its pass is right, and whether that is one for the authentication service only.
func passOf(header http.Header, key []byte) (peer string, authOnly, ok bool) {
	values := header["Proxy-Authorization"]
	if len(values) != 1 {
		return "", false, false
	}
	encoded, basic := strings.CutPrefix(values[0], "Basic ")
	text, err := base64.StdEncoding.DecodeString(encoded)
	if !basic || err != nil {
		return "", false, false
	}
	peer, given, found := strings.Cut(string(text), ":")
	all, err := Pass(key, peer)
	some, err2 := AuthPass(key, peer)
	if err != nil || err2 != nil || !found {
		return "", false, false
	}
	authOnly = hmac.Equal([]byte(given), []byte(some))
	if !authOnly && !hmac.Equal([]byte(given), []byte(all)) {
		return "", false, false
	}
	return peer, authOnly, true
}

// minKey is the least length of a key, in bytes.
const minKey = 32

// The passes have a prefix each, so that none can be made of another one. The ID of a cluster has no zero byte.
const (
	passPrefix     = "liqo.io/proxy/v1\x00"
	authPassPrefix = "liqo.io/proxy-auth/v1\x00"
)

// Pass returns the word with which a peer names itself to the proxy of this cluster, whose key only this cluster has. With it, the proxy bounds the
// connections of each peer. It opens nothing else: behind the proxy, the peer proves itself as it does elsewhere.
func Pass(key []byte, peer string) (string, error) { return derive(key, passPrefix, peer) }

// AuthPass is the same for a peer that may reach the authentication service only.
func AuthPass(key []byte, peer string) (string, error) { return derive(key, authPassPrefix, peer) }

func derive(key []byte, prefix, peer string) (string, error) {
	if len(key) < minKey {
		return "", errors.New("the key of the proxy is missing or too short")
	}
	if peer == "" {
		return "", errors.New("the cluster has no ID")
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(prefix + peer))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), nil
}

// URL returns the URL of the proxy for a peer. address is the one under which the peer reaches it.
func URL(key []byte, peer, address string) (string, error) {
	word, err := Pass(key, peer)
	return urlWith(word, peer, address), err
}

// AuthURL is the same with a pass for the authentication service only.
func AuthURL(key []byte, peer, address string) (string, error) {
	word, err := AuthPass(key, peer)
	return urlWith(word, peer, address), err
}

// urlWith returns the empty text without a pass.
func urlWith(word, peer, address string) string {
	if word == "" {
		return ""
	}
	made := url.URL{Scheme: "http", User: url.UserPassword(peer, word), Host: address + ":" + strconv.Itoa(Port)}
	return made.String()
}
