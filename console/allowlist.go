package console

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/edit"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
)

// allowlistCheck is the allowlist with the answer to "would this address pass?".
type allowlistCheck struct {
	Entries []string
	// ReportOnly: requests from other addresses are counted, not refused.
	ReportOnly bool
	// Own is the viewer's address as this server sees it; empty: unknown. OwnPasses is about it.
	Own       string
	OwnPasses bool
	// Asked is what the viewer has entered. Answer is about it. RefusedKeys are those whose own list does not have it, by name.
	Asked, Answer string
	RefusedKeys   []string
}

func (c *console) checkAllowlist(r *web.Request, all keys.Rows) (allowlistCheck, error) {
	check := allowlistCheck{
		Asked: strings.Trim(r.URL.Query().Get("address"), " \t"), ReportOnly: r.Merchant.Spec.IPAllowlistMode == v1alpha1.IPAllowlistReport,
	}
	for _, entry := range r.Merchant.Spec.IPAllowlist {
		check.Entries = append(check.Entries, string(entry))
	}
	list, err := allowlist.Parse(r.Merchant.Spec.IPAllowlist)
	if err != nil {
		return check, fmt.Errorf("read the allowlist: %w", err)
	}
	if own, err := c.clients.Resolve(r.RemoteAddr, r.Header.Values("X-Forwarded-For")); err == nil {
		check.Own, check.OwnPasses = own.String(), list.Allows(own)
	}
	if check.Asked == "" {
		return check, nil
	}
	passes, badAddress := list.Test(check.Asked)
	switch {
	case badAddress != nil:
		check.Answer = c.pages.Words.Text("allowlist.answer.wrong")
	case passes:
		check.Answer = c.pages.Words.Text("allowlist.answer.passes")
	case check.ReportOnly:
		check.Answer = c.pages.Words.Text("allowlist.answer.reported")
	default:
		check.Answer = c.pages.Words.Text("allowlist.answer.refused")
	}
	if badAddress == nil && (passes || check.ReportOnly) {
		check.RefusedKeys, err = refusedKeys(all, check.Asked)
	}
	return check, err
}

// refusedKeys names the keys whose own list does not have an address.
func refusedKeys(all keys.Rows, address string) (names []string, err error) {
	for _, key := range all {
		list, err := allowlist.Parse(key.Spec.IPAllowlist)
		if err != nil {
			return nil, fmt.Errorf("read the allowlist of a key: %w", err)
		}
		if allowed, err := list.Test(address); err == nil && !allowed {
			names = append(names, key.Name)
		}
	}
	return names, nil
}

// allowlistForm is the form of the allowlist.
type allowlistForm struct {
	edit.Form

	Allowlist string // one entry a line
	// Added is the block that the form adds to the allowlist; empty: none.
	Added string
	// ShutOut is the viewer's own address, if the new allowlist refuses it and that was not confirmed.
	ShutOut string
}

func (c *console) renderAllowlistForm(w http.ResponseWriter, r *web.Request, status int, form allowlistForm) error {
	return c.pages.Render(w, status, "allowlist", r.View(form))
}

func (c *console) showAllowlistForm(w http.ResponseWriter, r *web.Request) error {
	var lines []string
	for _, entry := range r.Merchant.Spec.IPAllowlist {
		lines = append(lines, string(entry))
	}
	form := allowlistForm{Form: edit.NewForm(r)}
	if added := r.URL.Query().Get("add"); refused(r.Merchant, added) && !slices.Contains(lines, added) {
		lines, form.Added = append(lines, added), added
	}
	form.Allowlist = strings.Join(lines, "\n")
	return c.renderAllowlistForm(w, r, http.StatusOK, form)
}

// refused reports whether the status has the block: a link from elsewhere adds nothing else to the form.
func refused(merchant *v1alpha1.Merchant, block string) bool {
	return merchant.Status.Allowlist != nil &&
		slices.ContainsFunc(merchant.Status.Allowlist.Refused, func(r v1alpha1.RefusedBlock) bool { return r.Block == block && r.KeyID == "" })
}

func (c *console) editAllowlist(w http.ResponseWriter, r *web.Request) error {
	form := allowlistForm{Form: edit.NewForm(r)}
	form.Allowlist = r.PostFormValue("allowlist")
	var entries []v1alpha1.IPBlock
	for entry := range strings.FieldsSeq(strings.ReplaceAll(form.Allowlist, ",", " ")) {
		if block := v1alpha1.IPBlock(entry); !slices.Contains(entries, block) {
			entries = append(entries, block)
		}
	}
	if problem := c.wrongEntry(entries); problem != "" {
		form.Error = problem
		return c.renderAllowlistForm(w, r, http.StatusUnprocessableEntity, form)
	}
	enforced := r.Merchant.Spec.IPAllowlistMode != v1alpha1.IPAllowlistReport
	if own := c.shutsOut(r.Request, entries); own != "" && enforced && r.PostFormValue("confirmed") == "" {
		form.ShutOut = own
		return c.renderAllowlistForm(w, r, http.StatusUnprocessableEntity, form)
	}
	done, err := c.editor.Change(r.Context(), r, &form.Form, audit.ActionEditAllowlist, func(changed *v1alpha1.Merchant) {
		changed.Spec.IPAllowlist = entries
	})
	switch {
	case err != nil:
		return err
	case !done:
		return c.renderAllowlistForm(w, r, http.StatusUnprocessableEntity, form)
	}
	return r.LeadTo(w, "#allowlist")
}

// wrongEntry says what to write instead of the first wrong entry. The API server refuses the same, in the words of kubectl.
func (c *console) wrongEntry(entries []v1alpha1.IPBlock) string {
	for _, entry := range entries {
		text := string(entry)
		block, err := netip.ParsePrefix(text)
		_, addressErr := netip.ParseAddr(text)
		switch {
		case err == nil && block != block.Masked():
			return c.pages.Words.Text("allowlist.error.bits", text, block.Masked())
		case err != nil && addressErr != nil:
			return c.pages.Words.Text("allowlist.error.form", text)
		}
	}
	return ""
}

// shutsOut returns the viewer's own address if it is not on a list; else, or if one of them cannot be read, nothing.
func (c *console) shutsOut(r *http.Request, entries []v1alpha1.IPBlock) string {
	list, err := allowlist.Parse(entries)
	if err != nil {
		return "" // the API server says which entry is wrong
	}
	own, err := c.clients.Resolve(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
	if err != nil || list.Allows(own) {
		return ""
	}
	return own.String()
}
