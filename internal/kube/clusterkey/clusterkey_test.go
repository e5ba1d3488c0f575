// SPDX-License-Identifier: Apache-2.0

package clusterkey

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestSecret(t *testing.T) {
	one, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	two, _ := Generate()
	rotated := Keys{Current: two.Current, Previous: one.Current}
	for _, want := range []Keys{one, rotated} {
		got, err := Parse(&corev1.Secret{Data: want.Data()})
		if err != nil || !got.Current.Equal(want.Current) || (got.Previous == nil) != (want.Previous == nil) ||
			want.Previous != nil && !got.Previous.Equal(want.Previous) {
			t.Errorf("%v", err)
		}
	}
	for fingerprint, want := range map[string]ed25519.PrivateKey{"": two.Current, one.Fingerprint(): one.Current, two.Fingerprint(): two.Current, "other": nil} {
		if got, found := rotated.Find(fingerprint); found != (want != nil) || found && !got.Equal(want) {
			t.Errorf("%q: found %v", fingerprint, found)
		}
	}
	for _, data := range []map[string][]byte{nil, {"key": nil}, {"key": make([]byte, 31)}, {"key": make([]byte, 32), "previous": nil}} {
		if _, err := Parse(&corev1.Secret{Data: data}); err == nil {
			t.Errorf("%v passed", data)
		}
	}
}

func TestFingerprint(t *testing.T) {
	print := Fingerprint(Public(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))))
	if !IsFingerprint(print) || len(print) != 43 {
		t.Errorf("%q", print)
	}
	for _, text := range []string{
		"", print[1:], print + "A", print[:42] + "!", print[:42] + "=", "c0ffee00c0ffee11c0ffee22c0ffee33c0ffee44c0ffee55c0ffee66c0ffee77",
	} {
		if IsFingerprint(text) {
			t.Errorf("%q passed", text)
		}
	}
}

// The fields can be decoded again, so no two lists of fields have the same signature.
func FuzzMessage(f *testing.F) {
	f.Add("", "", "")
	f.Add("a", "", "b")
	f.Add("\x00\x00\x00\x01", "x", "\n")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		const purpose = "purpose"
		rest, ok := bytes.CutPrefix(Message(purpose, []byte(a), []byte(b), []byte(c)), []byte(purpose+"\n"))
		for _, want := range []string{a, b, c} {
			if !ok || len(rest) < 4 || len(rest) < 4+int(binary.BigEndian.Uint32(rest)) {
				t.Fatalf("cut short: %q", rest)
			}
			n := int(binary.BigEndian.Uint32(rest))
			if got := string(rest[4 : 4+n]); got != want {
				t.Errorf("%q; want %q", got, want)
			}
			rest = rest[4+n:]
		}
		if len(rest) > 0 {
			t.Errorf("%q is left", rest)
		}
	})
}
