// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// formats of the output for programs.
var formats = []string{"json", "yaml"}

func checkFormat(format string) error {
	if format != "" && !slices.Contains(formats, format) {
		return fmt.Errorf("unsupported output format %q; use %s", format, strings.Join(formats, " or "))
	}
	return nil
}

// show prints a value in a format for programs, or boxes for people.
func show(to io.Writer, format string, value any, boxes func() []box) error {
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
	draw(to, boxes())
	return nil
}
