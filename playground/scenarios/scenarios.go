// SPDX-License-Identifier: Apache-2.0

// Package scenarios holds the scenario files that ship inside the playground program.
package scenarios

import "embed"

// Files are the shipped scenarios, NAME.yaml each.
//
//go:embed *.yaml
var Files embed.FS
