// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"liqo.io/liqo/internal/peering/proxy"
)

func TestProxyOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--key-path=/key": "",
		"--key-path=/key --address=:9000 --api-server=10.80.0.1:443 --auth=liqo-auth.liqo.svc:443": "",
		"":                                       "--key-path",
		"--key-path=/key --api-server=10.80.0.1": "--api-server",
		"--key-path=/key --auth=:443":            "--auth",
		"--key-path=/key --address=8118":         "--address",
	} {
		var o proxyOptions
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.Register(flags)
		if err := flags.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if err := o.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// TestProxyUpstreams: there are two destinations, and only an authentication service without TLS has its TLS ended here.
func TestProxyUpstreams(t *testing.T) {
	for _, tls := range []bool{true, false} {
		o := proxyOptions{apiServer: "10.80.0.1:443", auth: "liqo-auth.liqo.svc:443", authTLS: tls, namespace: "liqo"}
		got, err := o.upstreams()
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || got[proxy.APIServer].Address != o.apiServer || got[proxy.APIServer].TLS != nil || got[proxy.Auth].Address != o.auth || (got[proxy.Auth].TLS == nil) != tls {
			t.Errorf("TLS of the authentication service %t: %+v", tls, got)
		}
	}
}
