// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"liqo.io/liqo/internal/action/networktest"
	"liqo.io/liqo/internal/cli/boxes"
)

func TestMatrixBox(t *testing.T) {
	report := networktest.Report{Local: "rome", Remote: "milan", Failed: 1}
	for _, protocol := range []string{"TCP", "UDP"} {
		for _, to := range []string{"pod on w1", "pod on w2"} {
			r := networktest.Result{
				Case: "pod to pod", FromCluster: "rome", From: "pod on w1", ToCluster: "milan", To: to, Protocol: protocol, Bytes: 10 << 20,
				Target: "10.1.0.7:5879", Source: "10.2.0.7",
			}
			if protocol == "UDP" && to == "pod on w2" {
				r.Source, r.Error = "", "no answer to 6 datagrams: i/o timeout"
			}
			report.Results = append(report.Results, r)
		}
	}
	report.Results = append(report.Results, networktest.Result{
		Case: "node to pod", FromCluster: "milan", From: "node w1", ToCluster: "rome", To: "pod on w1", Protocol: "TCP", Bytes: 1,
		Target: "10.2.0.7:5879", Source: "10.3.0.0",
	})
	golden(t, "test_network", drawn(boxes.Network(report, false)))
	golden(t, "test_network_verbose", drawn(boxes.Network(report, true)))
	const want = "1 of 5 ways do not work:\n- pod to pod, UDP, 10 MiB, rome pod on w1 to milan pod on w2 (10.1.0.7:5879): no answer to 6 datagrams: i/o timeout"
	if err := boxes.FailedPaths(report); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	report.Failed = 0
	if err := boxes.FailedPaths(report); err != nil {
		t.Error(err)
	}
}

func TestTestNetworkRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"test network --bytes 0":                            "--bytes 0",
		"test network --bytes 1000000000":                   "--bytes",
		"test network --timeout 0s":                         "--timeout",
		"test network -o xml":                               `"xml"`,
		"test network --context nowhere":                    `(local) kubeconfig: context "nowhere"`,
		"test network milan":                                "unknown command",
		"test network --server a --remote-context nowhere2": `(remote) kubeconfig: context "nowhere2"`,
	} {
		if code, out, errOut := run(t, "", strings.Fields(args)...); code != 1 || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%s: %d %s%s", args, code, out, errOut)
		}
	}
}
