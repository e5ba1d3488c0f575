// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"encoding/base64"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

// FuzzReadRing: no Secret makes a gateway panic or prints a private key, and a Secret that is read, written and read again holds the same keys.
func FuzzReadRing(f *testing.F) {
	one, other := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", Size))), base64.StdEncoding.EncodeToString([]byte(strings.Repeat("n", Size)))
	f.Add(one, other, "2026-01-02T03:04:05Z 7", "6", "7")
	f.Add(" "+one+"\n", other, "", "", "")
	f.Add(one[:len(one)/2]+"\n"+one[len(one)/2:], other, "2026-01-02T03:04:05+02:00 a b", "", "a b")
	f.Add(one[:40], other, "", "", "")
	f.Add(one, "not base64 but secret", "", "", "")
	f.Add(one+one, other, "", "", "")
	f.Add(base64.StdEncoding.EncodeToString(make([]byte, Size)), other, "", "", "")
	f.Add(one, other, "yesterday 7", "", "7")
	f.Add(one, other, "2026-01-02T03:04:05Z", "", "7")
	f.Add("", "", " ", "", "")
	f.Fuzz(func(t *testing.T, current, next, begun, handled, wanted string) {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: SecretName, Annotations: map[string]string{labels.RotateKeys: wanted}},
			Data: map[string][]byte{
				"lane-0.current": []byte(current), "lane-0.next": []byte(next), "lane-1.current": []byte(current), "lane-99.next": []byte(next),
				begunEntry: []byte(begun), handledEntry: []byte(handled), "other": []byte("kept"),
			},
		}
		before := maps.Clone(secret.Data)
		read, err := Read(secret)
		if err != nil {
			for _, private := range []string{current, next} {
				const words = "entry lane-0.current lane-0.next of Secret " + SecretName + " is not a key of 32 bytes in base64; delete the entry to have a new key created"
				if text := strings.TrimSpace(private); len(text) > 8 && strings.Contains(err.Error(), text) && !strings.Contains(words, text) {
					t.Errorf("the error prints a key: %v", err)
				}
			}
			if !strings.Contains(err.Error(), SecretName) || !strings.Contains(err.Error(), "delete the entry") || len(err.Error()) > 300 {
				t.Errorf("no advice: %v", err)
			}
			return
		}
		if len(read.Lanes) != 1 || CheckPublic(public(read.Lanes[0].current)) != nil {
			t.Fatalf("%d lanes of one are read", len(read.Lanes))
		}
		if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(next)); err != nil || string(raw) != string(read.Lanes[0].next.Bytes()) {
			t.Errorf("the next key is another one, %v", err)
		}
		if key := read.Advertised(0); key != public(read.Lanes[0].current) && (key != public(read.Lanes[0].next) || read.Begun != wanted || wanted == handled) {
			t.Errorf("the advertised key is %s", key)
		}
		if step, left := read.Rotate(time.Time{}, time.Now()); (step == RotationWait) != (left > 0) ||
			left > rotateDeadline || step == RotationPromote && read.Begun != wanted {
			t.Errorf("the rotation goes on with %v after %s", step, left)
		}
		if at, value, _ := strings.Cut(begun, " "); read.Begun != value || value != "" && read.BegunAt.Format(time.RFC3339) != at && read.BegunAt.IsZero() {
			t.Errorf("the rotation of %q is read as %q, begun at %s", begun, read.Begun, read.BegunAt)
		}
		secret = &corev1.Secret{ObjectMeta: secret.ObjectMeta, Data: map[string][]byte{"other": []byte("kept"), "lane-99.next": []byte(next)}}
		read.Write(secret)
		again, err := Read(secret)
		if err != nil || !again.Lanes[0].current.Equal(read.Lanes[0].current) || !again.Lanes[0].next.Equal(read.Lanes[0].next) ||
			again.Begun != read.Begun || again.handled != read.handled || read.Begun != "" && !again.BegunAt.Equal(read.BegunAt.Truncate(time.Second)) {
			t.Errorf("%q is read again as %+v, %v", before, again, err)
		}
		if string(secret.Data["other"]) != "kept" || string(secret.Data["lane-99.next"]) != next {
			t.Error("another entry is lost")
		}
	})
}
