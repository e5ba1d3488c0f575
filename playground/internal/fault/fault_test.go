// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func TestStateOperations(t *testing.T) {
	slow := Delay{Mean: 50 * time.Millisecond, Jitter: 5 * time.Millisecond}
	two := State{}.SetLoss("rome", "milan", 500).SetDelay("host", "rome", slow)
	for _, test := range []struct {
		name string
		got  State
		want []Link
	}{
		{"partition", State{}.Partition("rome", "milan", false), []Link{{A: "milan", B: "rome", DropAB: true, DropBA: true}}},
		{"one way along the order", State{}.Partition("milan", "rome", true), []Link{{A: "milan", B: "rome", DropAB: true}}},
		{"one way against the order", State{}.Partition("rome", "milan", true), []Link{{A: "milan", B: "rome", DropBA: true}}},
		{"cuts add up", State{}.Partition("rome", "milan", true).Partition("milan", "rome", true), []Link{{A: "milan", B: "rome", DropAB: true, DropBA: true}}},
		{"heal", State{}.Partition("rome", "milan", false).Heal("milan", "rome"), nil},
		{"heal keeps other faults", two.Partition("rome", "milan", false).Heal("rome", "milan"), two.Links},
		{
			"allow", State{}.Allow("rome", "milan", ports("udp/9", "tcp/443", "udp/9"), false),
			[]Link{{A: "milan", B: "rome", AllowAB: ports("tcp/443", "udp/9"), AllowBA: ports("tcp/443", "udp/9")}},
		},
		{
			"allow replaces", State{}.Allow("rome", "milan", ports("udp/9"), false).Allow("rome", "milan", ports("tcp/443"), true),
			[]Link{{A: "milan", B: "rome", AllowBA: ports("tcp/443")}},
		},
		{"heal opens", two.Allow("rome", "milan", ports("icmp"), false).Heal("milan", "rome"), two.Links},
		{"heal of itself harms no other link", two.Heal("rome", "rome"), two.Links},
		{"sorted", two, []Link{{A: "host", B: "rome", Delay: slow}, {A: "milan", B: "rome", Loss: 500}}},
		{
			"several faults on a link", two.SetBandwidth("milan", "rome", 100*Megabit),
			[]Link{{A: "host", B: "rome", Delay: slow}, {A: "milan", B: "rome", Loss: 500, Bandwidth: 100 * Megabit}},
		},
		{"zero removes", two.SetLoss("milan", "rome", 0), []Link{{A: "host", B: "rome", Delay: slow}}},
		{"clear all", two.Clear(), nil},
		{"clear a site", two.Clear("milan"), []Link{{A: "host", B: "rome", Delay: slow}}},
		{"clear the common site", two.Clear("rome"), nil},
		{"clear a link", two.Clear("rome", "host"), []Link{{A: "milan", B: "rome", Loss: 500}}},
		{"clear a healthy link", two.Clear("milan", "host"), two.Links},
	} {
		t.Run(test.name, func(t *testing.T) {
			if len(test.got.Links) != len(test.want) || len(test.want) > 0 && !reflect.DeepEqual(test.got.Links, test.want) {
				t.Errorf("got  %v\nwant %v", test.got.Links, test.want)
			}
		})
	}
	if len(two.Links) != 2 || two.Link("rome", "milan").Loss != 500 || !two.Link("milan", "host").Healthy() {
		t.Errorf("an operation changed the state it started from: %v", two)
	}
}

func TestStateJSON(t *testing.T) {
	state := State{}.Partition("rome", "milan", true).
		SetDelay("rome", "milan", Delay{Mean: 1500 * time.Microsecond, Jitter: time.Microsecond}).
		Allow("rome", "milan", ports("udp/31000-31010", "icmp"), true).
		SetLoss("rome", "host", 1).SetBandwidth("rome", "host", 1500*Kilobit)
	text, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"links":[{"a":"host","b":"rome","loss":"0.01%","bandwidth":"1500kbit"},{"a":"milan","b":"rome","dropBA":true,"allowBA":["icmp",` +
		`"udp/31000-31010"],"delay":"1.5ms±1µs"}]}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	var back State
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, state) {
		t.Errorf("read back: got %v, want %v", back, state)
	}
	if err := json.Unmarshal([]byte(`{"links":[{"a":"x","b":"y","loss":"many"}]}`), &back); err == nil {
		t.Error("a state with the loss \"many\" was read without an error")
	}
}

func TestLinkString(t *testing.T) {
	for want, link := range map[string]Link{
		"milan <-> rome: healthy":                        {A: "milan", B: "rome"},
		"milan <-> rome: partitioned from rome to milan": {A: "milan", B: "rome", DropBA: true},
		"milan <-> rome: partitioned, loss 100%":         {A: "milan", B: "rome", DropAB: true, DropBA: true, Loss: FullLoss},
		"host <-> rome: delay 50ms±5ms, bandwidth 1gbit": {
			A: "host", B: "rome", Delay: Delay{50 * time.Millisecond, 5 * time.Millisecond}, Bandwidth: Gigabit,
		},
		"milan <-> rome: closed but for tcp/443, udp/9": State{}.Allow("rome", "milan", ports("udp/9", "tcp/443"), false).Links[0],
		"milan <-> rome: closed but for udp/9 from rome to milan, loss 1%": State{}.Allow("rome", "milan", ports("udp/9"), true).
			SetLoss("rome", "milan", 100).Links[0],
		"milan <-> rome: closed but for icmp from milan to rome": State{}.Allow("milan", "rome", ports("icmp"), true).Links[0],
		"host <-> rome: partitioned from host to rome":           {A: "host", B: "rome", DropAB: true},
		"host <-> rome: delay 1s, loss 0.1%":                     {A: "host", B: "rome", Delay: Delay{Mean: time.Second}, Loss: 10},
	} {
		if got := link.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
