"""Pages for people: made here as HTML, whole without JavaScript, kept up to date by a little of it."""
