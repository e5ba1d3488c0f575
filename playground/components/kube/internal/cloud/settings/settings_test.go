// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
	"liqo.io/liqo/playground/components/kube/internal/cloud/settingstest"
)

func TestParsePool(t *testing.T) {
	for text, good := range map[string]bool{
		"": true, "10.0.0.1-10.0.0.9": true, "10.0.0.1 - 10.0.0.1": true,
		"10.0.0.1": false, "10.0.0.9-10.0.0.1": false, "a-b": false, "fd00::1-fd00::9": false,
	} {
		if _, err := settings.ParsePool(text); (err == nil) != good {
			t.Errorf("%q: error %v", text, err)
		}
	}
	if (settings.Pool{}).Contains(netip.Addr{}) {
		t.Error("the empty pool holds the zero address")
	}
}

func TestConfigFile(t *testing.T) {
	good, err := json.Marshal(settingstest.Example())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ old, new, problem string }{
		"good":          {"", "", ""},
		"unknown field": {`"cluster"`, `"klaster"`, `unknown field "klaster"`},
		"two values":    {`"cluster":`, `"cluster":"x"}{"cluster":`, "more than one value"},
		"pod CIDR":      {`"10.200.0.0/16"`, `"10.200.0.0"`, "podCIDR"},
		"DNS outside":   {`"10.80.0.10"`, `"10.1.0.10"`, "dnsIP: 10.1.0.10 is not in serviceCIDR 10.80.0.0/12"},
		"root":          {`"/roots/a"`, `"/"`, "nodes.rome-control-plane.root"},
		"node address":  {`"10.210.1.11"`, `""`, "nodes.rome-worker.address"},
		"pool":          {`"10.210.1.200-10.210.1.250"`, `"10.210.1.200"`, "loadBalancerPool"},
		"hollow kind":   {`"kwok"`, `"kubemark"`, "hollow[0].kind"},
		"quantity":      {`"32"`, `"much"`, "hollow[0].capacity.cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cloud.json")
			text := strings.Replace(string(good), test.old, test.new, 1)
			if test.old != "" && text == string(good) {
				t.Fatalf("%q is not in the file", test.old)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			config, err := settings.Load(path)
			switch {
			case test.problem == "" && err != nil:
				t.Error(err)
			case test.problem == "" && config.Nodes["rome-worker"].Address != netip.MustParseAddr("10.210.1.11"):
				t.Errorf("read %+v", config)
			case test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)):
				t.Errorf("error %v, want %q", err, test.problem)
			}
		})
	}
}
