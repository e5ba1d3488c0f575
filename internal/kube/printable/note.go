// SPDX-License-Identifier: Apache-2.0

package printable

// Note limits a text of ours to the size of the note of an event.
func Note(text string) string {
	const most = 800
	if len(text) > most {
		return text[:most] + " ..."
	}
	return text
}
