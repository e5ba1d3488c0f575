// SPDX-License-Identifier: Apache-2.0

//go:build !race

package single

const detector = false
