// SPDX-License-Identifier: Apache-2.0

// Package remotename gives remote namespaces their names: consumers ask for them, and providers recognise them.
//
// It decides from values. It must not know whether such a namespace exists. Its tests prove it.
package remotename
