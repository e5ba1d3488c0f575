// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"liqo.io/liqo/playground/internal/image/oci"
)

// testDeadline bounds one command run by a test.
const testDeadline = 20 * time.Second

// largest lists the ten largest files: the candidates to make an image smaller.
func largest(files []oci.File) string {
	type sized struct {
		path string
		size int64
	}
	var all []sized
	for _, file := range files {
		if err := file.Content.With(func(r *io.SectionReader) error {
			all = append(all, sized{file.Path, r.Size()})
			return nil
		}); err != nil {
			return err.Error()
		}
	}
	slices.SortFunc(all, func(a, b sized) int { return int(b.size - a.size) })
	var out strings.Builder
	for _, file := range all[:min(10, len(all))] {
		fmt.Fprintf(&out, "%10d %s\n", file.size, file.path)
	}
	return out.String()
}
