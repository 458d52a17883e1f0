"""What the extension does in an app: set up, decorated, hooked, asked by commands, listened to."""
