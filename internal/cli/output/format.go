// SPDX-License-Identifier: Apache-2.0

package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

var Formats = []string{"json", "yaml"}

func CheckFormat(format string) error {
	if format != "" && !slices.Contains(Formats, format) {
		return fmt.Errorf("unsupported output format %q; use %s", format, strings.Join(Formats, " or "))
	}
	return nil
}

// Show prints a value in a format for programs, or boxes for people.
func Show(to io.Writer, format string, value any, boxes func() []Box) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(to)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	case "yaml":
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = to.Write(text)
		return err
	}
	Draw(to, boxes())
	return nil
}
