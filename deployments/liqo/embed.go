// SPDX-License-Identifier: Apache-2.0

// Package liqo is Liqo's Helm chart as bytes: liqoctl installs from it, so that an installation needs no chart
// repository, and the server program applies the resource definitions in it before an upgrade.
//
// It must not know Helm, or anything else that would make the server program larger. Rendering is tested
// here, with Helm's own engine, in chart_test.go and its neighbours; what the objects
// do in an API server, in the folder integration.
package liqo

import "embed"

// FS holds the files of the chart, with Chart.yaml at the root.
//
//go:embed Chart.yaml .helmignore README.md values.yaml values.schema.json crds files all:templates
var FS embed.FS
