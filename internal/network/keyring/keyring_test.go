// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
)

func testRing(t *testing.T) (*Ring, *corev1.Secret) {
	t.Helper()
	keys, secret := &Ring{Lanes: map[int]KeyPair{}}, &corev1.Secret{}
	if err := keys.Fill(rand.Reader); err != nil {
		t.Fatal(err)
	}
	keys.Write(secret)
	return keys, secret
}

// An administrator can store a key from `wg genkey`. Our own keys have the form that the kernel returns, and no private key is ever printed.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestKeyFormat(t *testing.T) {
	_, secret := testRing(t)
	secret.Data["lane-0.current"] = []byte("eF6HHWdCJvjqbBF6FtJVzVpVVGbA+Zp0hVMSPZ0IbUc=\n")
	keys, err := Keys(secret)
	if err != nil {
		t.Fatal(err)
	}
	for lane, key := range keys {
		if private := key.Current; lane > 0 && (private[0]&7 != 0 || private[31]&192 != 64) {
			t.Errorf("lane %d: the kernel would return another key", lane)
		}
		private := base64.StdEncoding.EncodeToString(key.Current[:])
		for _, text := range []string{fmt.Sprint(key), fmt.Sprintf("%+v %#v %s", key, key, key), fmt.Sprint(keys), fmt.Sprintf("%+v", keys)} {
			if strings.Contains(text, private) || strings.Contains(text, fmt.Sprint(key.Current)) || strings.Contains(text, fmt.Sprintf("%#v", key.Current)) {
				t.Errorf("lane %d: the private key is printed", lane)
			}
		}
		if err := CheckPublic(key.Public); err != nil {
			t.Errorf("lane %d: %v", lane, err)
		}
	}
}

func TestKeysAreRead(t *testing.T) {
	keys, secret := testRing(t)
	reread, err := Read(secret)
	if err != nil || reread.Missing() || reread.Advertised(3) != keys.Advertised(3) || reread.Advertised(9) != "" {
		t.Errorf("%v, missing %t", err, reread.Missing())
	}
	delete(secret.Data, "lane-5.next")
	if reread, err = Read(secret); err != nil || !reread.Missing() {
		t.Errorf("a lane without keys: %v", err)
	}
	for name, value := range map[string]string{"lane-0.current": "garbage", "lane-1.next": "AAAA", "rotation-begun": "yesterday monday"} {
		_, broken := testRing(t)
		broken.Data[name] = []byte(value)
		if _, err := Keys(broken); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), value) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

func TestRotation(t *testing.T) {
	keys, secret := testRing(t)
	secret.Annotations = map[string]string{}
	step := func(settled time.Time, now time.Time, want rotation) time.Duration {
		t.Helper()
		read, err := Read(secret)
		if err != nil {
			t.Fatal(err)
		}
		*keys = read
		got, wait := keys.Rotate(settled, now)
		if got != want {
			t.Errorf("%d, want %d (wait %s)", got, want, wait)
		}
		return wait
	}
	old, next := keys.Advertised(0), public(keys.Lanes[0].next)
	step(noon, noon, RotationIdle)
	secret.Annotations[labels.RotateKeys] = "monday morning"
	step(noon, noon, RotationStart)
	if keys.Advertised(0) != old {
		t.Error("advertised before it is stored")
	}
	keys.Begun, keys.BegunAt = keys.Wanted, noon
	keys.Write(secret)
	if wait := step(time.Time{}, noon.Add(time.Second), RotationWait); wait != 59*time.Second || keys.Advertised(0) != next {
		t.Errorf("wait %s, advertised %s", wait, keys.Advertised(0))
	}
	if wait := step(noon.Add(3*time.Second), noon.Add(4*time.Second), RotationWait); wait != time.Second {
		t.Errorf("settled: wait %s", wait)
	}
	if wait := step(time.Time{}, noon.Add(-time.Hour), RotationWait); wait != rotateDeadline {
		t.Errorf("clock set back: wait %s", wait)
	}
	step(time.Time{}, noon.Add(rotateDeadline), RotationPromote)
	step(noon.Add(3*time.Second), noon.Add(5*time.Second), RotationPromote)
	if err := keys.Promote(rand.Reader); err != nil {
		t.Fatal(err)
	}
	keys.Write(secret)
	step(time.Time{}, noon, RotationIdle)
	if keys.Advertised(0) != next || public(keys.Lanes[0].current) != next || public(keys.Lanes[0].next) == next {
		t.Error("not promoted")
	}
	if _, ok := secret.Data[begunEntry]; ok {
		t.Error("the rotation is not over")
	}
	// Another value in the middle of a rotation starts it again; an empty one stops it.
	secret.Annotations[labels.RotateKeys] = "tuesday"
	step(noon, noon, RotationStart)
	delete(secret.Annotations, labels.RotateKeys)
	step(noon, noon, RotationIdle)
}
