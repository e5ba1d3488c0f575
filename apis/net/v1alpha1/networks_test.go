// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"
	"testing"
)

var (
	four = Networks{PodCIDR: "10.1.0.0/16", ExternalCIDR: "10.2.0.0/16"}
	six  = Networks{PodCIDR: "fd00:1::/48", ExternalCIDR: "fd00:2::/48"}
)

// TestRowsOfNetworkConfig: what counts of the fields, the rows, and both.
func TestRowsOfNetworkConfig(t *testing.T) {
	signed := func(rows ...Networks) map[string]string { return map[string]string{NetworksEntry: digest(rows)} }
	for name, test := range map[string]struct {
		spec NetworkConfigSpec
		want []Networks
		err  string
	}{
		"an earlier version": {NetworkConfigSpec{PodCIDR: four.PodCIDR, ExternalCIDR: four.ExternalCIDR}, []Networks{four}, ""},
		"rows that repeat": {
			NetworkConfigSpec{PodCIDR: four.PodCIDR, ExternalCIDR: four.ExternalCIDR, Networks: []Networks{four}}, []Networks{four}, "",
		},
		"rows only":             {NetworkConfigSpec{Networks: []Networks{four}, BackendConfig: signed(four)}, []Networks{four}, ""},
		"rows only, not signed": {NetworkConfigSpec{Networks: []Networks{four}}, nil, "not signed"},
		"two families": {
			NetworkConfigSpec{PodCIDR: four.PodCIDR, ExternalCIDR: four.ExternalCIDR, Networks: []Networks{four, six}, BackendConfig: signed(four, six)},
			[]Networks{four, six},
			"",
		},
		"a row that the sender did not sign": {
			NetworkConfigSpec{PodCIDR: four.PodCIDR, ExternalCIDR: four.ExternalCIDR, Networks: []Networks{four, six}}, nil, "not signed",
		},
		"rows in another order": {NetworkConfigSpec{Networks: []Networks{six, four}, BackendConfig: signed(four, six)}, nil, "not signed"},
		"disagreement": {
			NetworkConfigSpec{PodCIDR: "10.9.0.0/16", ExternalCIDR: four.ExternalCIDR, Networks: []Networks{four}, BackendConfig: signed(four)},
			nil, "readers of an earlier version would use other networks",
		},
		"disagreement about one of them": {
			NetworkConfigSpec{PodCIDR: four.PodCIDR, Networks: []Networks{four}, BackendConfig: signed(four)}, nil, "readers of an earlier version",
		},
		"twice the same family": {
			NetworkConfigSpec{Networks: []Networks{four, four}, BackendConfig: signed(four, four)}, nil, "the same address family",
		},
		"two families in a row": {
			NetworkConfigSpec{Networks: []Networks{{four.PodCIDR, six.ExternalCIDR}}, BackendConfig: signed(Networks{four.PodCIDR, six.ExternalCIDR})},
			nil, "two address families",
		},
		"no network": {NetworkConfigSpec{Networks: []Networks{{"x", "y"}}, BackendConfig: signed(Networks{"x", "y"})}, nil, "CIDR notation"},
	} {
		got, err := test.spec.Rows()
		if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestSetRows: what is written is read again, by a reader of an earlier version as well, and is carried only if such a one could not have it from the fields.
func TestSetRows(t *testing.T) {
	for _, rows := range [][]Networks{{four}, {four, six}, {six}} {
		var spec NetworkConfigSpec
		spec.SetRows(rows)
		if got, err := spec.Rows(); err != nil || !slices.Equal(got, rows) || spec.PodCIDR != rows[0].PodCIDR || spec.ExternalCIDR != rows[0].ExternalCIDR {
			t.Errorf("%v is read as %v, %v", rows, got, err)
		}
		carried := spec.Carried()
		if got, err := carried.Rows(); err != nil || !slices.Equal(got, rows) || (len(carried.Networks) > 0) != (len(rows) > 1) {
			t.Errorf("%v is carried as %v, %v", rows, carried.Networks, err)
		}
		earlier := spec // pruned by an API server that does not know the rows
		earlier.Networks = nil
		if got, err := earlier.Rows(); err != nil || !slices.Equal(got, rows[:1]) {
			t.Errorf("%v is read by an earlier version as %v, %v", rows, got, err)
		}
	}
	spec := NetworkConfigSpec{BackendConfig: map[string]string{"publicKey": "k"}}
	spec.SetRows([]Networks{four, six})
	if spec.SetRows([]Networks{four}); len(spec.BackendConfig) != 1 {
		t.Errorf("a digest of rows that are gone stays: %v", spec.BackendConfig)
	}
}

// TestRowsOfAnswer: an answer that states two things counts for neither.
func TestRowsOfAnswer(t *testing.T) {
	one := NetworksNAT{"None", "10.9.0.0/16"}
	for name, test := range map[string]struct {
		status NetworkConfigStatus
		want   []NetworksNAT
	}{
		"an earlier version": {NetworkConfigStatus{PodCIDRNAT: "None", ExternalCIDRNAT: "10.9.0.0/16"}, []NetworksNAT{one}},
		"both":               {NetworkConfigStatus{PodCIDRNAT: "None", ExternalCIDRNAT: "10.9.0.0/16", Networks: []NetworksNAT{one}}, []NetworksNAT{one}},
		"disagreement":       {NetworkConfigStatus{PodCIDRNAT: "None", ExternalCIDRNAT: "None", Networks: []NetworksNAT{one}}, nil},
		"rows only":          {NetworkConfigStatus{Networks: []NetworksNAT{one}}, nil}, // the field is what the signature of an earlier version covers
	} {
		if got, err := test.status.Rows(); !slices.Equal(got, test.want) || (err == nil) != (test.want != nil) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	var status NetworkConfigStatus
	status.SetRows([]NetworksNAT{one})
	if got, err := status.Rows(); err != nil || !slices.Equal(got, []NetworksNAT{one}) || status.ExternalCIDRNAT != one.ExternalCIDRNAT {
		t.Errorf("%v, %v", got, err)
	}
	if status.SetRows(nil); status.PodCIDRNAT != "" || status.Networks != nil {
		t.Errorf("after a refusal: %+v", status)
	}
}

// TestRowsOfTunnel: only this cluster writes the object, and components of an earlier version read its fields, so these count if the rows are others.
func TestRowsOfTunnel(t *testing.T) {
	old := TunnelNetworks{"10.1.0.0/16", "None", "10.2.0.0/16", "None", "10.3.0.0/16", "242.1.0.0/16", "10.4.0.0/16", "None"}
	other := old
	other.RemoteNATPodCIDR = "242.9.0.0/16"
	second := TunnelNetworks{LocalPodCIDR: "fd00:1::/48"}
	fields := TunnelEndpointSpec{
		LocalPodCIDR: old.LocalPodCIDR, LocalNATPodCIDR: old.LocalNATPodCIDR, LocalExternalCIDR: old.LocalExternalCIDR,
		LocalNATExternalCIDR: old.LocalNATExternalCIDR,
		RemotePodCIDR:        old.RemotePodCIDR, RemoteNATPodCIDR: old.RemoteNATPodCIDR, RemoteExternalCIDR: old.RemoteExternalCIDR,
		RemoteNATExternalCIDR: old.RemoteNATExternalCIDR,
	}
	with := func(spec TunnelEndpointSpec, rows ...TunnelNetworks) TunnelEndpointSpec {
		spec.Networks = rows
		return spec
	}
	for name, test := range map[string]struct {
		spec TunnelEndpointSpec
		want []TunnelNetworks
	}{
		"an earlier version":               {fields, []TunnelNetworks{old}},
		"both":                             {with(fields, old, second), []TunnelNetworks{old, second}},
		"rows only":                        {with(TunnelEndpointSpec{}, old), []TunnelNetworks{old}},
		"an earlier version wrote after":   {with(fields, other, second), []TunnelNetworks{old}},
		"neither of them, in a new object": {TunnelEndpointSpec{}, []TunnelNetworks{{}}},
	} {
		if got := test.spec.Rows(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
