// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
)

func newKeys(t *testing.T) clusterkey.Keys {
	t.Helper()
	keys, err := clusterkey.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func testSpec() *netv1alpha1.NetworkConfigSpec {
	spec := &netv1alpha1.NetworkConfigSpec{
		Cluster: netv1alpha1.ClusterIdentity{ClusterID: "rome-id", ClusterName: "rome"}, PodCIDR: "10.1.0.0/16", ExternalCIDR: "10.2.0.0/16",
		AdditionalPodCIDRs: []netv1alpha1.CIDR{"fd00::/64"}, EndpointIP: "203.0.113.7", BackendType: "wireguard",
		BackendConfig: map[string]string{"publicKey": "k", "port": "5871"}, Version: 7,
		Lanes: []netv1alpha1.Lane{
			{Number: 0, PublicKey: "k", Carriers: []netv1alpha1.Carrier{{Type: "UDP", Addresses: []string{"203.0.113.7"}, Port: 5871}}},
			{Number: 1, PublicKey: "l"},
		},
	}
	spec.SetRows([]netv1alpha1.Networks{{PodCIDR: "10.1.0.0/16", ExternalCIDR: "10.2.0.0/16"}, {PodCIDR: "fd00:1::/48", ExternalCIDR: "fd00:2::/48"}})
	return spec
}

// TestEveryFieldIsSigned changes each value of the spec, and finds it in the encoding: a field that is added to the type must be added there.
func TestEveryFieldIsSigned(t *testing.T) {
	before, keys := encodeConfig("milan-id", testSpec()), newKeys(t)
	signatures := Config(keys, "milan-id", testSpec())
	leaves := 0
	var visit func(path string, at func(*netv1alpha1.NetworkConfigSpec) reflect.Value)
	visit = func(path string, at func(*netv1alpha1.NetworkConfigSpec) reflect.Value) {
		switch value := at(testSpec()); value.Kind() {
		case reflect.Struct:
			for i := range value.NumField() {
				name := value.Type().Field(i).Name
				if path == "" && name == "Signatures" {
					continue
				}
				visit(path+"."+name, func(s *netv1alpha1.NetworkConfigSpec) reflect.Value { return at(s).Field(i) })
			}
		case reflect.Slice:
			if path != ".Lanes[1].Carriers" && value.Len() == 0 {
				t.Fatalf("testSpec has no %s", path)
			}
			for i := range value.Len() {
				visit(fmt.Sprintf("%s[%d]", path, i), func(s *netv1alpha1.NetworkConfigSpec) reflect.Value { return at(s).Index(i) })
			}
		default:
			leaves++
			changed := testSpec()
			switch into := at(changed); into.Kind() {
			case reflect.String:
				into.SetString(into.String() + "x")
			case reflect.Int32, reflect.Int64:
				into.SetInt(into.Int() + 9)
			case reflect.Map:
				into.SetMapIndex(reflect.ValueOf("port"), reflect.ValueOf("1"))
			default:
				t.Fatalf("%s is a %s, which this test does not know", path, into.Kind())
			}
			changed.Signatures = signatures
			if err := CheckConfig(keys.Fingerprint(), "milan-id", changed); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s is not signed: %v", path, err)
			}
		}
	}
	visit("", func(s *netv1alpha1.NetworkConfigSpec) reflect.Value { return reflect.ValueOf(s).Elem() })
	if leaves < 15 {
		t.Errorf("%d values visited", leaves)
	}
	if bytes.Equal(encodeConfig("milan", testSpec()), before) {
		t.Error("the sender is not signed")
	}
}

func TestCheckConfig(t *testing.T) {
	ours, others := newKeys(t), newKeys(t)
	rotated := clusterkey.Keys{Current: newKeys(t).Current, Previous: ours.Current}
	signed := func(keys clusterkey.Keys) *netv1alpha1.NetworkConfigSpec {
		spec := testSpec()
		spec.Signatures = Config(keys, "milan-id", spec)
		return spec
	}
	for name, row := range map[string]struct {
		spec *netv1alpha1.NetworkConfigSpec
		pin  string
		edit func(*netv1alpha1.NetworkConfigSpec)
		want error
	}{
		"signed":                 {signed(ours), ours.Fingerprint(), nil, nil},
		"unpinned":               {signed(ours), "", nil, ErrUnpinned},
		"unsigned":               {testSpec(), ours.Fingerprint(), nil, ErrUnsigned},
		"another's":              {signed(others), ours.Fingerprint(), nil, ErrOtherKey},
		"changed":                {signed(ours), ours.Fingerprint(), func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].PublicKey = "m" }, ErrInvalid},
		"rotated, old pin":       {signed(rotated), ours.Fingerprint(), nil, nil},
		"rotated, new pin":       {signed(rotated), rotated.Fingerprint(), nil, nil},
		"old signature, new pin": {signed(ours), rotated.Fingerprint(), nil, ErrOtherKey},
		"no signature":           {signed(ours), ours.Fingerprint(), func(s *netv1alpha1.NetworkConfigSpec) { s.Signatures[0].Value = "" }, ErrInvalid},
		"half a key":             {signed(ours), ours.Fingerprint(), func(s *netv1alpha1.NetworkConfigSpec) { s.Signatures[0].PublicKey = "AAAA" }, ErrOtherKey},
		"the pinned key, another's": {signed(others), ours.Fingerprint(), func(s *netv1alpha1.NetworkConfigSpec) {
			s.Signatures[0].PublicKey = signed(ours).Signatures[0].PublicKey
		}, ErrInvalid},
		"pruned by an API server of an earlier version": {signed(ours), ours.Fingerprint(), func(s *netv1alpha1.NetworkConfigSpec) { s.Networks = nil }, nil},
		// then it states what the fields do
		"a row taken away":       {signed(ours), ours.Fingerprint(), func(s *netv1alpha1.NetworkConfigSpec) { s.Networks = s.Networks[:1] }, nil},
		"another row":            {signed(ours), ours.Fingerprint(), func(s *netv1alpha1.NetworkConfigSpec) { s.Networks[1].PodCIDR = "fd00:9::/48" }, ErrInvalid},
		"another first row":      {signed(ours), ours.Fingerprint(), func(s *netv1alpha1.NetworkConfigSpec) { s.Networks[0].PodCIDR = "10.9.0.0/16" }, ErrInvalid},
		"lanes in another order": {signed(ours), ours.Fingerprint(), func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0], s.Lanes[1] = s.Lanes[1], s.Lanes[0] }, nil},
	} {
		if row.edit != nil {
			row.edit(row.spec)
		}
		if err := CheckConfig(row.pin, "milan-id", row.spec); !errors.Is(err, row.want) || (err == nil) != (row.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, row.want)
		}
	}
	if err := CheckConfig(ours.Fingerprint(), "paris-id", signed(ours)); !errors.Is(err, ErrInvalid) {
		t.Errorf("of another sender: %v", err)
	}
}

func TestCheckAnswer(t *testing.T) {
	keys := newKeys(t)
	exchange := func() Exchange {
		return Exchange{
			Asker: "rome-id", Answerer: "milan-id", Config: testSpec(),
			Answer: &netv1alpha1.NetworkConfigStatus{Processed: true, PodCIDRNAT: "10.5.0.0/16", ExternalCIDRNAT: "None"},
		}
	}
	for name, row := range map[string]struct {
		edit func(*Exchange)
		want error
	}{
		"signed":           {func(*Exchange) {}, nil},
		"other gateways":   {func(e *Exchange) { e.Config.Lanes, e.Config.Version = nil, 8 }, nil},
		"other pods":       {func(e *Exchange) { e.Config.PodCIDR = "10.7.0.0/16" }, ErrInvalid},
		"other external":   {func(e *Exchange) { e.Config.ExternalCIDR = "10.7.0.0/16" }, ErrInvalid},
		"pods elsewhere":   {func(e *Exchange) { e.Answer.PodCIDRNAT = "10.6.0.0/16" }, ErrInvalid},
		"others elsewhere": {func(e *Exchange) { e.Answer.ExternalCIDRNAT = "10.6.0.0/16" }, ErrInvalid},
		"to another":       {func(e *Exchange) { e.Asker = "paris-id" }, ErrInvalid},
		"by another":       {func(e *Exchange) { e.Answerer = "paris-id" }, ErrInvalid},
		"unsigned":         {func(e *Exchange) { e.Answer.Signatures = nil }, ErrUnsigned},
	} {
		e := exchange()
		e.Answer.Signatures = Answer(keys, e)
		row.edit(&e)
		if err := CheckAnswer(keys.Fingerprint(), e); !errors.Is(err, row.want) || (err == nil) != (row.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, row.want)
		}
	}
}

// TestCheckAnswerOfFamilies: an answer about further address families is signed row by row, with the rows that it answers, and is not one about the
// first alone.
func TestCheckAnswerOfFamilies(t *testing.T) {
	keys := newKeys(t)
	for name, row := range map[string]struct {
		edit func(*Exchange)
		want error
	}{
		"signed":           {func(*Exchange) {}, nil},
		"another row":      {func(e *Exchange) { e.Answer.Networks[1].PodCIDRNAT = "fd00:9::/48" }, ErrInvalid},
		"a row taken away": {func(e *Exchange) { e.Answer.Networks = e.Answer.Networks[:1] }, ErrInvalid},
		"no rows":          {func(e *Exchange) { e.Answer.Networks = nil }, ErrInvalid},
		"another question": {func(e *Exchange) { e.Config.Networks[1].ExternalCIDR = "fd00:9::/48" }, ErrInvalid},
	} {
		e := Exchange{Asker: "rome-id", Answerer: "milan-id", Config: testSpec(), Answer: &netv1alpha1.NetworkConfigStatus{Processed: true}}
		e.Answer.SetRows([]netv1alpha1.NetworksNAT{{PodCIDRNAT: "10.5.0.0/16", ExternalCIDRNAT: "None"}, {PodCIDRNAT: "fd00:5::/48", ExternalCIDRNAT: "None"}})
		e.Answer.Signatures = Answer(keys, e)
		row.edit(&e)
		if err := CheckAnswer(keys.Fingerprint(), e); !errors.Is(err, row.want) || (err == nil) != (row.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, row.want)
		}
	}
}

// FuzzEncoding: two configurations with the same encoding are the same, but for what has no meaning.
func FuzzEncoding(f *testing.F) {
	text := func(change func(*netv1alpha1.NetworkConfigSpec)) []byte {
		spec := testSpec()
		change(spec)
		raw, err := json.Marshal(spec)
		if err != nil {
			f.Fatal(err)
		}
		return raw
	}
	same := text(func(*netv1alpha1.NetworkConfigSpec) {})
	f.Add(same, same)
	for _, change := range []func(*netv1alpha1.NetworkConfigSpec){
		func(s *netv1alpha1.NetworkConfigSpec) { s.AdditionalPodCIDRs, s.EndpointIP = nil, "fd00::/64" },
		func(s *netv1alpha1.NetworkConfigSpec) { s.BackendConfig = map[string]string{"port": "5871publicKeyk"} },
		func(s *netv1alpha1.NetworkConfigSpec) {
			s.Lanes[0].Carriers[0].Addresses = []string{"203.0.113.7", "1"}
		},
		func(s *netv1alpha1.NetworkConfigSpec) {
			s.Lanes[0].Carriers, s.Lanes[1].Carriers = nil, s.Lanes[0].Carriers
		},
		func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes = append(s.Lanes, s.Lanes[1]) },
		func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].Number, s.Version = 71, 0 },
		func(s *netv1alpha1.NetworkConfigSpec) { s.PodCIDR, s.ExternalCIDR = s.ExternalCIDR, s.PodCIDR },
	} {
		f.Add(same, text(change))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var one, two netv1alpha1.NetworkConfigSpec
		if json.Unmarshal(a, &one) != nil || json.Unmarshal(b, &two) != nil {
			return
		}
		one.Signatures, two.Signatures = nil, nil
		if !one.Covered() || !two.Covered() {
			return // not believed, whatever is signed
		}
		if one.StatesMore() != two.StatesMore() { // an API server of an earlier version has dropped the rows of one
			one.Networks, two.Networks = nil, nil
		}
		one, two = one.Carried(), two.Carried()
		if !bytes.Equal(encodeConfig("milan-id", &one), encodeConfig("milan-id", &two)) {
			return
		}
		for _, spec := range []*netv1alpha1.NetworkConfigSpec{&one, &two} {
			slices.SortStableFunc(spec.Lanes, byNumber)
		}
		if !equality.Semantic.DeepEqual(one, two) {
			t.Errorf("%s and %s have the same encoding", a, b)
		}
	})
}
