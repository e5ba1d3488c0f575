// SPDX-License-Identifier: Apache-2.0

package network

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

func testRing(t *testing.T) (*ring, *corev1.Secret) {
	t.Helper()
	keys, secret := &ring{lanes: map[int]keyPair{}}, &corev1.Secret{}
	if err := keys.fill(rand.Reader); err != nil {
		t.Fatal(err)
	}
	keys.write(secret)
	return keys, secret
}

// An administrator can store a key from `wg genkey`. Our own keys have the form that the kernel returns, and no private key is ever printed.
var noonOfKeys = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestKeyFormat(t *testing.T) {
	_, secret := testRing(t)
	secret.Data["lane-0.current"] = []byte("eF6HHWdCJvjqbBF6FtJVzVpVVGbA+Zp0hVMSPZ0IbUc=\n")
	keys, err := GatewayKeys(secret)
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
		if err := checkKey(key.Public); err != nil {
			t.Errorf("lane %d: %v", lane, err)
		}
	}
}

func TestKeysAreRead(t *testing.T) {
	keys, secret := testRing(t)
	reread, err := readRing(secret)
	if err != nil || reread.missing() || reread.advertised(3) != keys.advertised(3) || reread.advertised(9) != "" {
		t.Errorf("%v, missing %t", err, reread.missing())
	}
	delete(secret.Data, "lane-5.next")
	if reread, err = readRing(secret); err != nil || !reread.missing() {
		t.Errorf("a lane without keys: %v", err)
	}
	for name, value := range map[string]string{"lane-0.current": "garbage", "lane-1.next": "AAAA", "rotation-begun": "yesterday monday"} {
		_, broken := testRing(t)
		broken.Data[name] = []byte(value)
		if _, err := GatewayKeys(broken); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), value) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

func TestRotation(t *testing.T) {
	keys, secret := testRing(t)
	secret.Annotations = map[string]string{}
	step := func(settled time.Time, now time.Time, want rotation) time.Duration {
		t.Helper()
		read, err := readRing(secret)
		if err != nil {
			t.Fatal(err)
		}
		*keys = read
		got, wait := keys.rotate(settled, now)
		if got != want {
			t.Errorf("%d, want %d (wait %s)", got, want, wait)
		}
		return wait
	}
	old, next := keys.advertised(0), public(keys.lanes[0].next)
	step(noonOfKeys, noonOfKeys, rotationIdle)
	secret.Annotations[labels.RotateKeys] = "monday morning"
	step(noonOfKeys, noonOfKeys, rotationStart)
	if keys.advertised(0) != old {
		t.Error("advertised before it is stored")
	}
	keys.begun, keys.begunAt = keys.wanted, noonOfKeys
	keys.write(secret)
	if wait := step(time.Time{}, noonOfKeys.Add(time.Second), rotationWait); wait != 59*time.Second || keys.advertised(0) != next {
		t.Errorf("wait %s, advertised %s", wait, keys.advertised(0))
	}
	if wait := step(noonOfKeys.Add(3*time.Second), noonOfKeys.Add(4*time.Second), rotationWait); wait != time.Second {
		t.Errorf("settled: wait %s", wait)
	}
	if wait := step(time.Time{}, noonOfKeys.Add(-time.Hour), rotationWait); wait != rotateDeadline {
		t.Errorf("clock set back: wait %s", wait)
	}
	step(time.Time{}, noonOfKeys.Add(rotateDeadline), rotationPromote)
	step(noonOfKeys.Add(3*time.Second), noonOfKeys.Add(5*time.Second), rotationPromote)
	if err := keys.promote(rand.Reader); err != nil {
		t.Fatal(err)
	}
	keys.write(secret)
	step(time.Time{}, noonOfKeys, rotationIdle)
	if keys.advertised(0) != next || public(keys.lanes[0].current) != next || public(keys.lanes[0].next) == next {
		t.Error("not promoted")
	}
	if _, ok := secret.Data[begunEntry]; ok {
		t.Error("the rotation is not over")
	}
	// Another value in the middle of a rotation starts it again; an empty one stops it.
	secret.Annotations[labels.RotateKeys] = "tuesday"
	step(noonOfKeys, noonOfKeys, rotationStart)
	delete(secret.Annotations, labels.RotateKeys)
	step(noonOfKeys, noonOfKeys, rotationIdle)
}
