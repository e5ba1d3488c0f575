// SPDX-License-Identifier: Apache-2.0

package quantities

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Wire knows where the protocol buffers of a type have quantities. The numbers of their fields are in the struct tags of the type.
type Wire struct {
	fields map[protowire.Number]*Wire
	amount bool // this message is a quantity
}

// WireOf returns the Wire of a type of Kubernetes' API, such as corev1.PodStatus. It panics if the type contains itself.
func WireOf[T any]() *Wire {
	if w := wireOf(reflect.TypeFor[T](), nil); w != nil {
		return w
	}
	return &Wire{}
}

// wireOf returns nil if there is no quantity in the type. The types that contain it are outer.
func wireOf(t reflect.Type, outer []reflect.Type) *Wire {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return wireOf(t.Elem(), outer)
	case reflect.Map: // a list of messages with a key and a value
		if value := wireOf(t.Elem(), outer); value != nil {
			return &Wire{fields: map[protowire.Number]*Wire{2: value}}
		}
		return nil
	case reflect.Struct:
	default:
		return nil
	}
	if t == reflect.TypeFor[resource.Quantity]() {
		return &Wire{amount: true}
	}
	if slices.Contains(outer, t) {
		panic("type " + t.String() + " contains itself")
	}
	w := &Wire{fields: map[protowire.Number]*Wire{}}
	for i := range t.NumField() {
		tag := strings.Split(t.Field(i).Tag.Get("protobuf"), ",") // bytes,8,rep,name=containerStatuses
		if len(tag) < 2 {
			continue
		}
		number, err := strconv.ParseInt(tag[1], 10, 32)
		if err != nil {
			panic("field " + t.Field(i).Name + " of " + t.String() + ": " + err.Error())
		}
		if inside := wireOf(t.Field(i).Type, append(outer, t)); inside != nil {
			w.fields[protowire.Number(number)] = inside
		}
	}
	if len(w.fields) == 0 {
		return nil
	}
	return w
}

// Check returns an error if a message of the type has a quantity that must not be parsed, or is not well formed.
func (w *Wire) Check(message []byte) error {
	return Fields(message, func(number protowire.Number, value []byte) error {
		switch inside := w.fields[number]; {
		case w.amount && number == 1:
			return refusal(string(value))
		case inside != nil:
			return inside.Check(value)
		}
		return nil
	})
}

var errGroup = errors.New("a protocol buffer has a group, which no type of Kubernetes has")

// Fields calls each for the fields of a message that have bytes: strings and messages. It is no more tolerant than the decoders of Kubernetes' types,
// which must not find a field that this does not find.
func Fields(message []byte, each func(number protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		number, kind, length := protowire.ConsumeTag(message)
		if length < 0 {
			return protowire.ParseError(length)
		}
		if kind == protowire.StartGroupType || kind == protowire.EndGroupType {
			return errGroup
		}
		message = message[length:]
		if length = protowire.ConsumeFieldValue(number, kind, message); length < 0 {
			return protowire.ParseError(length)
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			if err := each(number, value); err != nil {
				return err
			}
		}
		message = message[length:]
	}
	return nil
}
