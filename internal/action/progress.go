// SPDX-License-Identifier: Apache-2.0

package action

// Prefix returns a Progress that puts the cluster before each message.
func Prefix(p Progress, prefix string) Progress { return prefixed{p, prefix} }

type prefixed struct {
	Progress
	prefix string
}

func (p prefixed) Start(text string) { p.Progress.Start(p.prefix + text) }
func (p prefixed) Done(text string)  { p.Progress.Done(p.prefix + text) }
func (p prefixed) Info(text string)  { p.Progress.Info(p.prefix + text) }
func (p prefixed) Warn(text string)  { p.Progress.Warn(p.prefix + text) }
