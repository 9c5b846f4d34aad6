from mixit_titan.parent import end_with_launcher

end_with_launcher()  # before the imports, which take seconds

from mixit_titan.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
