// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// proberOptions are the flags that concern one kind of probe only.
type proberOptions struct {
	server   string // dns
	status   int    // http; 0: 2xx and 3xx
	insecure bool   // http
}

// newProber checks the target and returns its prober.
func newProber(kind, target string, options proberOptions) (prober, error) {
	switch kind {
	case "tcp", "udp":
		if _, _, err := net.SplitHostPort(target); err != nil {
			return nil, fmt.Errorf("target %q: %w; want HOST:PORT", target, err)
		}
		if kind == "udp" {
			return udpProber(target), nil
		}
		return tcpProber(target), nil
	case "http":
		if !strings.Contains(target, "://") {
			target = "http://" + target
		}
		parsed, err := url.Parse(target)
		if err != nil {
			return nil, fmt.Errorf("target: %w", err)
		}
		if parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
			return nil, fmt.Errorf("target is %q; want e.g. http://web.default.svc/api/info", target)
		}
		return httpProber(target, options), nil
	case "dns":
		if options.server != "" {
			if _, _, err := net.SplitHostPort(options.server); err != nil {
				options.server = net.JoinHostPort(options.server, "53")
			}
		}
		return dnsProber(target, options.server), nil
	}
	return nil, fmt.Errorf("unknown kind %q; want tcp, http, udp or dns", kind)
}

// tcpProber is answered when a connection is accepted.
func tcpProber(target string) prober {
	return func(ctx context.Context) (string, error) {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", target)
		if err != nil {
			return "", err
		}
		from := connection.LocalAddr().String()
		return "from " + from, connection.Close()
	}
}

// udpProber is answered when the target sends the same bytes back.
func udpProber(target string) prober {
	return func(ctx context.Context) (string, error) {
		connection, err := new(net.Dialer).DialContext(ctx, "udp", target)
		if err != nil {
			return "", err
		}
		defer connection.Close()
		// Ends the read below when the time is over or the program must stop.
		defer context.AfterFunc(ctx, func() { connection.Close() })()

		sent := []byte(rand.Text())
		if _, err := connection.Write(sent); err != nil {
			return "", err
		}
		buffer := make([]byte, maxUDP)
		for {
			n, err := connection.Read(buffer)
			if ctx.Err() != nil {
				return "", fmt.Errorf("no answer from %s: %w", target, context.Cause(ctx))
			}
			if err != nil {
				return "", err
			}
			if bytes.Equal(buffer[:n], sent) { // anything else is a late answer or of another sender
				return "from " + connection.LocalAddr().String(), nil
			}
		}
	}
}

// httpProber is answered by the wanted status and a whole body, on a new connection.
func httpProber(target string, options proberOptions) prober {
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: options.insecure}, //nolint:gosec // requested by --insecure
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context) (string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return "", err
		}
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		head, err := io.ReadAll(io.LimitReader(response.Body, maxInfo))
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
		}
		if err != nil {
			return response.Status, fmt.Errorf("answer of %s: %w", target, err)
		}
		detail := response.Status
		var responder info
		if json.Unmarshal(head, &responder) == nil && responder.Pod != "" { // any other body is fine too
			detail += fmt.Sprintf(" pod=%s node=%s cluster=%s", responder.Pod, responder.Node, responder.Cluster)
		}
		wanted := response.StatusCode >= http.StatusOK && response.StatusCode < http.StatusBadRequest
		if options.status != 0 {
			wanted = response.StatusCode == options.status
		}
		if !wanted {
			return detail, fmt.Errorf("%s answers %s", target, response.Status)
		}
		return detail, nil
	}
}

// dnsProber is answered when the name has an address. It looks it up as every Go
// program in the pod does: hosts file, then resolv.conf with its search domains.
func dnsProber(name, server string) prober {
	resolver := &net.Resolver{PreferGo: true}
	if server != "" {
		resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server)
		}
	}
	return func(ctx context.Context) (string, error) {
		addresses, err := resolver.LookupHost(ctx, name)
		return strings.Join(addresses, " "), err
	}
}
