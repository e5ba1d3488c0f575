// SPDX-License-Identifier: Apache-2.0

package quantities_test

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"liqo.io/liqo/internal/kube/quantities"
)

var podStatus = quantities.WireOf[corev1.PodStatus]()

// placeholder is an amount that a message can have and that no field has by chance; the tests put another one of the same length in its place.
const placeholder = "123456789012345"

// statusesWithAmounts returns the message of a status for each place where a pod's status has a quantity.
func statusesWithAmounts(t testing.TB) (all map[string][]byte) {
	t.Helper()
	all = map[string][]byte{}
	var fill func(value reflect.Value, path string, done func(path string))
	fill = func(value reflect.Value, path string, done func(path string)) {
		switch value.Kind() {
		case reflect.Pointer:
			value.Set(reflect.New(value.Type().Elem()))
			fill(value.Elem(), path, done)
		case reflect.Slice:
			value.Set(reflect.MakeSlice(value.Type(), 1, 1))
			fill(value.Index(0), path, done)
		case reflect.Map:
			element := reflect.New(value.Type().Elem()).Elem()
			key := reflect.New(value.Type().Key()).Elem()
			if key.Kind() != reflect.String {
				return
			}
			key.SetString("cpu")
			fill(element, path, func(path string) {
				value.Set(reflect.MakeMap(value.Type()))
				value.SetMapIndex(key, element)
				done(path)
			})
		case reflect.Struct:
			if value.Type() == reflect.TypeFor[resource.Quantity]() {
				value.Set(reflect.ValueOf(resource.MustParse(placeholder)))
				done(path)
				return
			}
			for i := range value.NumField() {
				if value.Type().Field(i).IsExported() {
					fill(value.Field(i), path+"."+value.Type().Field(i).Name, done)
					value.Field(i).SetZero()
				}
			}
		}
	}
	var status corev1.PodStatus
	fill(reflect.ValueOf(&status).Elem(), "status", func(path string) {
		message, err := status.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		all[path] = message
	})
	return all
}

// TestAttackM7Wire: wherever the status of a pod has a quantity in Kubernetes' types, one that takes hours to parse is found before.
func TestAttackM7Wire(t *testing.T) {
	all := statusesWithAmounts(t)
	if len(all) < 12 {
		t.Errorf("only %d places have a quantity: %v", len(all), all)
	}
	for path, message := range all {
		if err := podStatus.Check(message); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if !strings.Contains(string(message), placeholder) {
			t.Fatalf("%s: the message has no %s", path, placeholder)
		}
		for _, bomb := range []string{"1e-200000000000", "1E+999999999999", "0.0000001e-9999"} {
			if err := podStatus.Check([]byte(strings.Replace(string(message), placeholder, bomb, 1))); err == nil {
				t.Errorf("%s: %s is accepted", path, bomb)
			}
		}
		if err := podStatus.Check(message[:len(message)-1]); err == nil {
			t.Errorf("%s: a message without its end is accepted", path)
		}
	}
}

// TestWireIsStrict: a message that decoders could read in more than one way is refused.
func TestWireIsStrict(t *testing.T) {
	amount := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "1e-2000000000")
	entry := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), amount)
	const allocated = 19 // PodStatus.allocatedResources, see below
	for what, message := range map[string][]byte{
		"the number of the field exceeds 32 bits": protowire.AppendBytes(protowire.AppendVarint(nil, (1<<32+allocated)<<3|uint64(protowire.BytesType)), entry),
		"in a group": append(append(
			protowire.AppendTag(nil, 99, protowire.StartGroupType),
			protowire.AppendBytes(protowire.AppendTag(nil, allocated, protowire.BytesType), entry)...,
		),
			protowire.AppendTag(nil, 99, protowire.EndGroupType)...),
		"an end without a start": protowire.AppendTag(nil, 99, protowire.EndGroupType),
		"field 0":                {0x02, 0x00},
		"a second time": append(protowire.AppendBytes(protowire.AppendTag(nil, allocated, protowire.BytesType), nil),
			protowire.AppendBytes(protowire.AppendTag(nil, allocated, protowire.BytesType), entry)...),
		"a second value": protowire.AppendBytes(
			protowire.AppendTag(nil, allocated, protowire.BytesType),
			append(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), nil), entry...),
		),
	} {
		if err := podStatus.Check(message); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	var status corev1.PodStatus
	if err := status.Unmarshal(protowire.AppendBytes(protowire.AppendTag(nil, allocated, protowire.BytesType), nil)); err != nil ||
		status.AllocatedResources == nil {
		t.Errorf("field %d is not allocatedResources: %v, %v", allocated, status, err)
	}
}

// FuzzWire: what passes is decoded without a parser of quantities that runs away.
func FuzzWire(f *testing.F) {
	for _, message := range statusesWithAmounts(f) {
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		if podStatus.Check(message) == nil {
			var status corev1.PodStatus
			_ = status.Unmarshal(message)
		}
	})
}
