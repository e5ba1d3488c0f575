// SPDX-License-Identifier: Apache-2.0

package quantities

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
)

// cheap matches quantities that are parsed in a bounded time. With an exponent of many digits, that takes hours and gigabytes.
var cheap = regexp.MustCompile(`^[-+.0-9]{1,32}([a-zA-Z]{0,2}|[eE][-+]?[0-9]{1,2})$`)

// refusal returns an error if a quantity must not be parsed.
func refusal(text string) error {
	if cheap.MatchString(text) {
		return nil
	}
	return fmt.Errorf("%.40q is not an amount that can be read", text)
}

// Names of fields of a pod whose values are quantities, and of fields that hold objects of quantities.
var (
	quantityFields = []string{"sizeLimit", "divisor"}
	quantityMaps   = []string{"requests", "limits", "overhead", "allocatedResources", "capacity", "resources"}
)

// CheckJSON returns an error if the JSON of a pod, or of an object with the spec of one, has a quantity that must not be parsed.
func CheckJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	// within has, for each open object or array, the field that holds it; field is the name of the member that comes next.
	var within []string
	var isObject []bool
	field, named := "", false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) && len(within) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		depth := len(within)
		inObject := depth > 0 && isObject[depth-1]
		if delim, is := token.(json.Delim); is {
			switch delim {
			case '{', '[':
				if !inObject {
					field = "" // an element of an array
				}
				within, isObject = append(within, field), append(isObject, delim == '{')
			default:
				within, isObject = within[:depth-1], isObject[:depth-1]
			}
			named = false
			continue
		}
		if inObject && !named {
			field, _ = token.(string)
			named = true
			continue
		}
		named = false
		if inObject && (slices.Contains(quantityFields, field) || slices.Contains(quantityMaps, within[depth-1])) {
			if text, scalar := amountOf(token); scalar {
				if err := refusal(text); err != nil {
					return fmt.Errorf("field %.63q: %w", field, err)
				}
			}
		}
	}
}

func amountOf(token json.Token) (text string, scalar bool) {
	switch value := token.(type) {
	case string:
		return value, true
	case json.Number:
		return value.String(), true
	}
	return "", false // null, and what no decoder accepts as a quantity
}
