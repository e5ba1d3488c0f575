// SPDX-License-Identifier: Apache-2.0

package project

import (
	"strings"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxReason bounds the reasons that we accept from a peer, in bytes.
const MaxReason = 256

// Text bounds a string that the peer wrote, and removes what moves the cursor of a terminal, is not visible, or changes the direction of writing.
func Text(theirs string, most int) string {
	if len(theirs) > most {
		end := most - len("…")
		for end > 0 && !utf8.RuneStart(theirs[end]) {
			end--
		}
		theirs = theirs[:end] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (!unicode.IsPrint(r) || r == utf8.RuneError) {
			return -1
		}
		return r
	}, theirs)
}

// Moment returns the time, or zero if it has no RFC 3339 form.
func Moment(theirs metav1.Time) metav1.Time {
	if year := theirs.UTC().Year(); year < 1970 || year > 9999 {
		return metav1.Time{}
	}
	return theirs
}
